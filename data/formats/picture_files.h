// Which pictures there are, and of which class: in a folder for each class, or in the lines of a .csv file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ringgrad {

struct LabelledPictures {
  struct Picture {
    std::filesystem::path file;
    int64_t label;  // its class
  };
  std::vector<std::string> classes;  // in the order of their names
  std::vector<Picture> pictures;
};

// FOLDER/cat/1.jpg, FOLDER/cat/more/2.png, FOLDER/dog/1.ppm: classes and pictures in the order of their names. Left out
// is what is not called .png, .jpg, .jpeg, .ppm or .pgm, and folders whose names begin with a dot, or that are links to
// FOLDER or above it. Throws DataError where there is no folder, no class in it, or no picture of a class.
LabelledPictures pictures_in_folders(const std::filesystem::path& folder);

// Lines of PATH,LABEL in their order: the label is what follows the last comma, a path begins where the file lies, and
// either may stand in double quotes, with commas in it, and "" for a quote. A first line that names no picture is a
// heading. Throws DataError where the file cannot be read, and, naming the line, where a path or a label lacks or a
// quote stands alone. Whether the pictures are there is not looked at.
LabelledPictures pictures_in_csv(const std::filesystem::path& file);

}  // namespace ringgrad
