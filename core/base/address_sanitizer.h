// ASAN_POISON_MEMORY_REGION(data, bytes) forbids a region under AddressSanitizer, ASAN_UNPOISON_MEMORY_REGION allows it
// again; nothing in other builds. For memory that is kept, not freed: a free block of a cache, what lies behind an
// array.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#endif
