"""Optional kernels in C++ for bf16 on CPUs with AVX512_BF16; everything works without them.

Decides nothing about models: operators `torch.ops.docmill.*` over plain tensors, each with an
equivalent in plain torch elsewhere in this package. May import torch and docmill.errors.
"""
