// Pictures of one's own, and which of them are for training and which for the test.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ringgrad/data/formats/picture_files.h"

namespace ringgrad::program {

struct OwnPictures {
  std::vector<std::string> classes;
  std::vector<LabelledPictures::Picture> train, test;
  std::string division;  // in words
  std::vector<LabelledPictures::LeftOut> left_out;
};

// A folder with a folder for each class; or with one for training (train, training, in any case of the letters) and one
// for the test (val, valid, validation, test or testing: the first of them that is there), each with folders for the
// classes, of which those for training count; or a .csv of paths and labels. Folders that this program has written, of
// runs, a run or cached pictures, are no classes. What is not divided is
// divided here: of each class a fifth of the pictures are for the test, chosen by a hash of their paths within the
// folder, so the same ones whatever the seed, and wherever the folder lies. Throws DataError where a class has too few
// pictures to be divided, where two folders are for training, and where picture_files.h says so.
OwnPictures find_own_pictures(const std::filesystem::path& path);

}  // namespace ringgrad::program
