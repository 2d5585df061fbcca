// Pictures of one's own, and which of them are for training and which for the test.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ringgrad/data/formats/picture_files.h"

namespace ringgrad::program {

struct OwnPictures {
  std::vector<std::string> classes;
  std::vector<LabelledPictures::Picture> train;
  std::vector<LabelledPictures::Picture> test;
  std::string split;  // in words
  std::vector<LabelledPictures::LeftOut> left_out;
};

// Finds pictures in one of three forms. (1) A folder with a folder for each class. (2) A folder
// with two folders that have folders for the classes. The one for training is train or training, in
// upper or lower case, and defines the classes. The one for the test is the first that exists of
// val, valid, validation, test and testing. (3) A .csv file of paths and labels.
//
// Folders that this program has written (runs, a run, cached pictures) are no classes. Pictures
// that are not divided are divided here: a fifth of each class is for the test. A hash of the path
// within the folder chooses them, so they are the same for every seed, wherever the folder lies.
// Throws DataError if a class has too few pictures to be divided, if two folders are for training,
// and in the cases of picture_files.h.
OwnPictures find_own_pictures(const std::filesystem::path& path);

}  // namespace ringgrad::program
