// Computes the constants for normalisation in data/datasets/catalog.cpp.
#pragma once

#include <cmath>
#include <vector>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad::test {

// Per channel, of pixel / 255 over all pixels of all images: the mean, and the standard deviation
// around it (divided by the number of pixels, not one less).
struct ChannelStatistics {
  std::vector<float> mean;
  std::vector<float> std;
};

inline ChannelStatistics channel_statistics(const ImageDataset& d) {
  const int64_t channels = d.images.size(1);
  const int64_t plane = d.images.size(2) * d.images.size(3);
  ChannelStatistics result;
  for (int64_t c = 0; c < channels; ++c) {
    uint64_t sum = 0;
    uint64_t squares = 0;  // sums of bytes, hence exact for 2^48 pixels
    for (int64_t n = 0; n < d.size(); ++n) {
      const uint8_t* pixels = d.images.data<uint8_t>() + (n * channels + c) * plane;
      for (int64_t i = 0; i < plane; ++i) {
        sum += pixels[i];
        squares += uint64_t{pixels[i]} * pixels[i];
      }
    }
    const double count = static_cast<double>(d.size() * plane);
    const double mean = static_cast<double>(sum) / count;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.std.push_back(
        static_cast<float>(std::sqrt(static_cast<double>(squares) / count - mean * mean) / 255));
  }
  return result;
}

}  // namespace ringgrad::test
