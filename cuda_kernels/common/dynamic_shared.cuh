// Dynamic shared memory as an array: DYNAMIC_SHARED(float, tile); tile[i] = ...  Its size is the launch's shared_bytes,
// its contents are undefined; one per kernel. The emulator's language.h has its own definition.
#pragma once

#include <cuda_runtime.h>

#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(Type, name)                                 \
  extern __shared__ __align__(128) unsigned char dynamic_shared[]; \
  Type* name = reinterpret_cast<Type*>(dynamic_shared)
#endif
