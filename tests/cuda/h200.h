// An H200, described by its properties as cuDNN writes them. Plans are made for it without the
// card.
#pragma once

namespace ringgrad::test {

inline constexpr const char* kH200 =
    R"({"deviceName":"NVIDIA H200","cudaDeviceId":0,"pciDeviceId":589369566,"deviceVer":900,"driverVer":13000,)"
    R"("multiProcessorCount":132,"maxThreadsPerSM":2048,"maxThreadsPerBlock":1024,"maxCtasPerSM":32,"warpSize":32,)"
    R"("maxRegistersPerSM":65536,"regsPerBlock":65536,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"l2CacheSize":62914560,)"
    R"("totalGlobalMem":150754820096,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64]})";

}  // namespace ringgrad::test
