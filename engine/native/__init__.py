"""Optional kernels in C++ for bf16 on CPUs with AVX512_BF16; everything works without them.

`src` holds operators `torch.ops.docmill.*` over plain tensors; `build` compiles and loads them;
`layers` and `slab` are what they replace of a model, each with an equivalent in plain torch outside
this package; `install` decides where. May import torch and the modules of engine.
"""
