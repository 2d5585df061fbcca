// Encodes tensor maps. The rules are those that the documentation of cuTensorMapEncodeTiled and
// cuTensorMapEncodeIm2col states; a driver reports a breach as error 1.
#include "ringgrad/cuda_kernels/emulator/tensor_map.h"

#include <cstring>
#include <string>
#include <string_view>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_runtime.h"

namespace ringgrad::emulator {
namespace {

thread_local std::string last_problem;

constexpr uint64_t kAlignment = 16;

int bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
  }
  return 0;
}

bool is_floating(CUtensorMapDataType type) { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }

// The arguments of both kinds of maps.
struct Tensor {
  CUtensorMap* map;
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* sizes;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

std::string problem_of(const Tensor& t, cuuint32_t least_rank) {
  constexpr uint64_t kMostSize = uint64_t{1} << 32;
  constexpr uint64_t kMostStride = uint64_t{1} << 40;
  constexpr uint32_t kMostElementStride = 8;
  if (!t.map || reinterpret_cast<uintptr_t>(t.map) % 64 != 0)
    return "the map's address is no multiple of 64";
  if (bytes_of(t.type) == 0) return str("data type ", t.type);
  if (t.rank < least_rank || t.rank > 5)
    return str("rank ", t.rank, ", expected ", least_rank, " to 5");
  if (!t.address || reinterpret_cast<uintptr_t>(t.address) % kAlignment != 0)
    return str("globalAddress ", t.address, " is no multiple of 16");
  for (cuuint32_t i = 0; i < t.rank; ++i)
    if (t.sizes[i] == 0 || t.sizes[i] > kMostSize)
      return str("globalDim[", i, "] is ", t.sizes[i], ", expected 1 to 2^32");
  uint64_t least = t.sizes[0] * static_cast<uint64_t>(bytes_of(t.type));
  for (cuuint32_t i = 0; i + 1 < t.rank; ++i) {
    if (t.strides[i] % kAlignment != 0 || t.strides[i] >= kMostStride)
      return str("globalStrides[", i, "] is ", t.strides[i],
                 ", expected a multiple of 16 below 2^40");
    if (i == 0 && t.strides[i] < least)
      return str("globalStrides[0] is ", t.strides[i], ", and a row has ", least, " bytes");
  }
  for (cuuint32_t i = 1; i < t.rank; ++i)
    if (t.element_strides[i] == 0 || t.element_strides[i] > kMostElementStride)
      return str("elementStrides[", i, "] is ", t.element_strides[i], ", expected 1 to 8");
  if (t.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return "interleave: the emulator has none";
  if (t.swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || t.swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
    return str("swizzle ", t.swizzle);
  if (t.promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE ||
      t.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
    return str("l2Promotion ", t.promotion);
  if (t.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_floating(t.type))
    return "oobFill of NaN for a type that is not floating";
  return "";
}

// The bytes of a row of the box, which are contiguous in shared memory.
std::string problem_of_row(const Tensor& t, const char* name, uint32_t elements) {
  const uint64_t bytes = uint64_t{elements} * static_cast<uint64_t>(bytes_of(t.type));
  if (bytes % kAlignment != 0)
    return str(name, " is ", elements, ", which is ", bytes, " bytes, expected a multiple of 16");
  const uint64_t span = kAlignment << t.swizzle;
  if (t.swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && bytes > span)
    return str(name, " is ", elements, ", which is ", bytes, " bytes, more than the swizzle's ",
               span);
  return "";
}

TensorMapFields fields_of(const Tensor& t) {
  TensorMapFields fields{};
  fields.magic = TensorMapFields::kMagic;
  fields.address = static_cast<char*>(t.address);
  fields.rank = static_cast<uint8_t>(t.rank);
  fields.type = static_cast<uint8_t>(t.type);
  fields.element_bytes = static_cast<uint8_t>(bytes_of(t.type));
  fields.span = static_cast<uint8_t>(kAlignment << t.swizzle);
  fields.fill = t.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ? 0 : 0xff;
  for (cuuint32_t i = 0; i < t.rank; ++i) {
    fields.last_places[i] = static_cast<uint32_t>(t.sizes[i] - 1);
    fields.element_strides[i] = i == 0 ? 1 : static_cast<uint8_t>(t.element_strides[i]);
    if (i + 1 < t.rank) fields.strides[i] = t.strides[i];
  }
  return fields;
}

CUresult refuse(const char* call, const std::string& problem) {
  last_problem = str(call, ": ", problem);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult write(CUtensorMap* map, const TensorMapFields& fields) {
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &fields, sizeof fields);
  return CUDA_SUCCESS;
}

std::string problem_of_corners(cuuint32_t rank, const cuuint64_t* sizes, const int* lower,
                               const int* upper) {
  const int low = rank == 3 ? -32768 : rank == 4 ? -128 : -16;
  for (cuuint32_t i = 0; i + 2 < rank; ++i) {
    for (const auto& [name, corner] :
         {std::pair("pixelBoxLowerCorner", lower[i]), std::pair("pixelBoxUpperCorner", upper[i])})
      if (corner < low || corner > -low - 1)
        return str(name, "[", i, "] is ", corner, ", expected ", low, " to ", -low - 1,
                   " for rank ", rank);
    if (static_cast<int64_t>(sizes[i + 1]) + upper[i] <= lower[i])
      return str("the box between corners ", lower[i], " and ", upper[i], " of ", sizes[i + 1],
                 " pixels is empty");
  }
  return "";
}

}  // namespace
}  // namespace ringgrad::emulator

using namespace ringgrad::emulator;
using ringgrad::str;

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "no error" : last_problem.c_str();
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  constexpr const char* kCall = "cuTensorMapEncodeTiled";
  constexpr uint32_t kMostBox = 256;
  const Tensor tensor{map,        type,    rank,      address, sizes, strides, element_strides,
                      interleave, swizzle, promotion, fill};
  if (const std::string problem = problem_of(tensor, 1); !problem.empty())
    return refuse(kCall, problem);
  for (cuuint32_t i = 0; i < rank; ++i)
    if (box[i] == 0 || box[i] > kMostBox)
      return refuse(kCall, str("boxDim[", i, "] is ", box[i], ", expected 1 to 256"));
  if (const std::string problem = problem_of_row(tensor, "boxDim[0]", box[0]); !problem.empty())
    return refuse(kCall, problem);
  TensorMapFields fields = fields_of(tensor);
  for (cuuint32_t i = 0; i < rank; ++i) fields.box[i] = static_cast<uint16_t>(box[i]);
  return write(map, fields);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower_corner, const int* upper_corner,
                                 cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  constexpr const char* kCall = "cuTensorMapEncodeIm2col";
  constexpr uint32_t kMostChannels = 256;
  constexpr uint32_t kMostPixels = 1024;
  const Tensor tensor{map,        type,    rank,      address, sizes, strides, element_strides,
                      interleave, swizzle, promotion, fill};
  if (const std::string problem = problem_of(tensor, 3); !problem.empty())
    return refuse(kCall, problem);
  if (const std::string problem = problem_of_corners(rank, sizes, lower_corner, upper_corner);
      !problem.empty())
    return refuse(kCall, problem);
  if (channels == 0 || channels > kMostChannels)
    return refuse(kCall, str("channelsPerPixel is ", channels, ", expected 1 to 256"));
  if (pixels == 0 || pixels > kMostPixels)
    return refuse(kCall, str("pixelsPerColumn is ", pixels, ", expected 1 to 1024"));
  if (const std::string problem = problem_of_row(tensor, "channelsPerPixel", channels);
      !problem.empty())
    return refuse(kCall, problem);
  TensorMapFields fields = fields_of(tensor);
  fields.im2col = true;
  fields.box[0] = static_cast<uint16_t>(channels);
  fields.pixels = static_cast<uint16_t>(pixels);
  for (cuuint32_t i = 0; i + 2 < rank; ++i) {
    fields.lower[i] = static_cast<int16_t>(lower_corner[i]);
    fields.upper[i] = static_cast<int16_t>(upper_corner[i]);
  }
  return write(map, fields);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const std::string_view name = symbol;
  *function = nullptr;
  if (name == "cuTensorMapEncodeTiled")
    *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  else if (name == "cuTensorMapEncodeIm2col")
    *function = reinterpret_cast<void*>(&cuTensorMapEncodeIm2col);
  else if (name == "cuGetErrorString")
    *function = reinterpret_cast<void*>(&cuGetErrorString);
  if (result)
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
