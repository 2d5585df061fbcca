// `shapes`: small colour pictures drawn by a program, in the format of CIFAR-10's files, so that
// the networks for CIFAR can train without a download.
//
// The set has seven figures and three textures in any colours, sizes, places and rotations, over a
// shaded background with distracting spots, under noise. Colour says nothing about the class, and
// no pixel alone does. So a linear classifier stays near 20 %, where a small ResNet exceeds 95 %.
// All arithmetic is on integers, so the files have the same bytes everywhere
// (data/datasets/catalog.cpp has their SHA-256).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "ringgrad/data/formats/cifar.h"

namespace ringgrad {

// Draws picture `number` of a class, 0 to 9 in the order of shape_classes(), as red, green and blue
// planes. A pure function of its arguments.
void draw_shape(int shape, uint64_t number, std::span<uint8_t, kCifarPixels> pixels);

const std::vector<std::string>& shape_classes();  // "circle", "square", …

// Writes five training files of 2,000 pictures and a test file of 2,000 into `folder`, which must
// exist. Each file appears complete or not at all. Throws IoError.
void make_shapes(const std::filesystem::path& folder);

}  // namespace ringgrad
