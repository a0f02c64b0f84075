// The kernels as torch operators `docmill::*`, for bf16 on CPUs with AVX512_BF16.
//
// What comes from a model, `x` and queries, may lie in memory as it likes; of another dtype or size than the kernels
// take it is refused here, before they would read beyond a tensor's end. Callers answer for everything else.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "rows.h"

namespace docmill {
namespace {

using torch::stable::Tensor;
using Maybe = std::optional<Tensor>;

bf16* values_of(const Tensor& tensor) { return static_cast<bf16*>(tensor.data_ptr()); }
bf16* values_of(const Maybe& tensor) { return tensor ? values_of(*tensor) : nullptr; }
float* floats_of(const Maybe& tensor) { return tensor ? static_cast<float*>(tensor->data_ptr()) : nullptr; }

// A model's values as the kernels read them: row by row, the values of a row side by side.
// `apart`: there may be other values between the rows, as where queries, keys and values are made together.
Tensor rows_of(const Tensor& x, bool apart = false) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::BFloat16, "values of another dtype than bfloat16");
  return x.is_contiguous() || (apart && x.stride(1) == 1) ? x : torch::stable::contiguous(x);
}

Tensor pack_weight(const Tensor& weight) {
  const int64_t N = weight.size(0), K = weight.size(1);
  STD_TORCH_CHECK(K % 2 == 0, "a weight of ", K, " inputs: they go in pairs");
  Tensor packed = torch::stable::new_empty(weight, {(N + PANEL - 1) / PANEL, K / 2, PANEL, 2});
  pack(values_of(weight), values_of(packed), N, K);
  return packed;
}

Tensor inputs_of(const Tensor& x, const Tensor& packed, int64_t N) {
  STD_TORCH_CHECK(packed.size(0) == (N + PANEL - 1) / PANEL, N, " outputs of a weight of ", packed.size(0), " panels");
  STD_TORCH_CHECK(x.size(1) == 2 * packed.size(1), "rows of ", x.size(1), " for a weight of ", 2 * packed.size(1), " inputs");
  return rows_of(x);
}

Tensor multiply_exactly(const Tensor& given, const Tensor& packed, int64_t N, const Maybe& bias) {
  const Tensor x = inputs_of(given, packed, N);
  const int64_t M = x.size(0), K = x.size(1);
  Tensor out = torch::stable::new_empty(x, {M, N}, torch::headeronly::ScalarType::Float);
  linear<Epilogue::Exact>({values_of(x), values_of(packed), floats_of(bias), nullptr, nullptr,
                           static_cast<float*>(out.data_ptr()), M, N, K});
  return out;
}

Tensor multiply_rows(
    const Tensor& given, const Tensor& packed, int64_t N, const Maybe& bias, const Maybe& residual, bool gated) {
  const Tensor x = inputs_of(given, packed, N);
  const Maybe added = residual ? Maybe(rows_of(*residual)) : std::nullopt;
  const int64_t M = x.size(0), K = x.size(1);
  STD_TORCH_CHECK(!added || (added->size(0) == M && added->size(1) == N), "added are other rows than ", M, " of ", N);
  Tensor out = torch::stable::new_empty(x, {M, gated ? N / 2 : N});
  const Linear l{values_of(x), values_of(packed), floats_of(bias), values_of(added), values_of(out), nullptr, M, N, K};
  if (gated)
    linear<Epilogue::SiluTimes>(l);
  else if (residual)
    linear<Epilogue::Add>(l);
  else
    linear<Epilogue::Plain>(l);
  return out;
}

Tensor rms_norm(const Tensor& given, const Tensor& weight, double epsilon) {
  const Tensor x = rows_of(given);
  STD_TORCH_CHECK(x.size(1) % LANES == 0, "a norm of ", x.size(1), " values: they go by ", LANES);
  Tensor out = torch::stable::new_empty(x, {x.size(0), x.size(1)});
  const Norm norm{static_cast<float*>(weight.data_ptr()), float(epsilon)};
  norm_rows(values_of(x), values_of(out), x.size(0), x.size(1), norm);
  return out;
}

void store_tokens(
    Tensor qkv, const Tensor& where, Tensor keys, Tensor values, int64_t H, int64_t K, const Maybe& cos,
    const Maybe& sin, const Maybe& query_norm, const Maybe& key_norm, double epsilon) {
  const float eps = float(epsilon);
  const int64_t D = qkv.size(1) / (H + 2 * K), R = cos ? cos->size(1) : 0;
  STD_TORCH_CHECK(D % PANEL == 0 && R % PANEL == 0, "heads of ", D, ", ", R, " turned: they go by ", PANEL);
  store({values_of(qkv), values_of(cos), values_of(sin), static_cast<int64_t*>(where.data_ptr()), values_of(keys),
         values_of(values), {floats_of(query_norm), eps}, {floats_of(key_norm), eps},
         qkv.size(0), H, K, D, R});
}

Tensor attend_runs(
    const Tensor& given, const Tensor& keys, const Tensor& values, const Tensor& runs, int64_t H, int64_t K,
    int64_t D, double scale, int64_t window, double softcap, const Maybe& sinks) {
  STD_TORCH_CHECK(D % PANEL == 0, "heads of ", D, ": they go by ", PANEL);
  const Tensor query = rows_of(given, true);
  Tensor out = torch::stable::new_empty(query, {query.size(0), H * D});
  attend({values_of(query), values_of(keys), values_of(values), static_cast<Run*>(runs.data_ptr()), runs.size(0),
          floats_of(sinks), values_of(out), H, K, D, query.stride(0), window, float(scale), float(softcap)});
  return out;
}

// What a decoder layer computes until keys and values are stored: norm, projections, turning; returns the projections.
Tensor begin_layer(
    const Tensor& hidden, const Tensor& norm, double epsilon, const Tensor& qkv_packed, const Maybe& qkv_bias,
    const Tensor& where, const Tensor& keys, const Tensor& values, int64_t H, int64_t K, int64_t D, const Tensor& cos,
    const Tensor& sin, const Maybe& query_norm, const Maybe& key_norm, double head_epsilon) {
  const Tensor x = rms_norm(hidden, norm, epsilon);
  const Tensor qkv = multiply_rows(x, qkv_packed, (H + 2 * K) * D, qkv_bias, std::nullopt, false);
  store_tokens(qkv, where, keys, values, H, K, cos, sin, query_norm, key_norm, head_epsilon);
  return qkv;
}

// The rest of it: attention and its projection, norm, gated MLP; both are added to what came in.
Tensor end_layer(
    const Tensor& hidden, const Tensor& qkv, const Tensor& keys, const Tensor& values, const Tensor& runs, int64_t H,
    int64_t K, int64_t D, double scale, int64_t window, const Tensor& o_packed, const Maybe& o_bias, const Tensor& norm,
    double epsilon, const Tensor& gate_up_packed, const Maybe& gate_up_bias, const Tensor& down_packed,
    const Maybe& down_bias) {
  const int64_t E = hidden.size(1), inner_size = 2 * down_packed.size(1);
  const Tensor attended = attend_runs(qkv, keys, values, runs, H, K, D, scale, window, 0.0, std::nullopt);
  const Tensor middle = multiply_rows(attended, o_packed, E, o_bias, hidden, false);
  const Tensor x = rms_norm(middle, norm, epsilon);
  const Tensor inner = multiply_rows(x, gate_up_packed, 2 * inner_size, gate_up_bias, std::nullopt, true);
  return multiply_rows(inner, down_packed, E, down_bias, middle, false);
}

}  // namespace
}  // namespace docmill

STABLE_TORCH_LIBRARY(docmill, m) {
  m.def("pack(Tensor weight) -> Tensor");
  m.def("linear(Tensor x, Tensor packed, int N, Tensor? bias, Tensor? residual, bool gated) -> Tensor");
  m.def("linear_exact(Tensor x, Tensor packed, int N, Tensor? bias) -> Tensor");
  m.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor");
  m.def(
      "store(Tensor(a!) qkv, Tensor where, Tensor(b!) keys, Tensor(c!) values, int H, int K, Tensor? cos, "
      "Tensor? sin, Tensor? query_norm, Tensor? key_norm, float epsilon) -> ()");
  m.def(
      "attend(Tensor query, Tensor keys, Tensor values, Tensor runs, int H, int K, int D, float scale, int window, "
      "float softcap, Tensor? sinks) -> Tensor");
  m.def(
      "begin_layer(Tensor hidden, Tensor norm, float epsilon, Tensor qkv_packed, Tensor? qkv_bias, Tensor where, "
      "Tensor(a!) keys, Tensor(b!) values, int H, int K, int D, Tensor cos, Tensor sin, Tensor? query_norm, "
      "Tensor? key_norm, float head_epsilon) -> Tensor");
  m.def(
      "end_layer(Tensor hidden, Tensor qkv, Tensor keys, Tensor values, Tensor runs, int H, int K, int D, float scale, "
      "int window, Tensor o_packed, Tensor? o_bias, Tensor norm, float epsilon, Tensor gate_up_packed, "
      "Tensor? gate_up_bias, Tensor down_packed, Tensor? down_bias) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(docmill, CPU, m) {
  m.impl("pack", TORCH_BOX(&docmill::pack_weight));
  m.impl("linear", TORCH_BOX(&docmill::multiply_rows));
  m.impl("linear_exact", TORCH_BOX(&docmill::multiply_exactly));
  m.impl("rms_norm", TORCH_BOX(&docmill::rms_norm));
  m.impl("store", TORCH_BOX(&docmill::store_tokens));
  m.impl("attend", TORCH_BOX(&docmill::attend_runs));
  m.impl("begin_layer", TORCH_BOX(&docmill::begin_layer));
  m.impl("end_layer", TORCH_BOX(&docmill::end_layer));
}
