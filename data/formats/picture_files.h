// Which pictures there are, and of which class: in a folder for each class, or in the lines of a
// .csv file.
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
  struct LeftOut {
    // ".gif", "hidden", "link to a folder", "no regular file", "beside the classes".
    std::string kind;
    int64_t count;
    std::filesystem::path first;
  };
  std::vector<std::string> classes;  // in the order of their names
  std::vector<Picture> pictures;
  std::vector<LeftOut> left_out;  // what lies there and is no picture, by kind
};

// Returns the folders in `folder` that can be classes, in the order of their names. Excluded are
// folders whose names begin with a dot, and links to `folder` or above it, which would contain
// everything again. Throws DataError if there is no folder.
std::vector<std::filesystem::path> class_folders(const std::filesystem::path& folder);

// Finds FOLDER/cat/1.jpg, FOLDER/cat/more/2.png, FOLDER/dog/1.ppm: classes and pictures in the
// order of their names. It leaves out files that are not called .png, .jpg, .jpeg, .ppm or .pgm,
// hidden files and folders (their names begin with a dot), links to folders inside a class, and
// pictures that lie in no class's folder. Throws DataError if there is no folder, no class in it,
// or no picture of a class.
LabelledPictures pictures_in_folders(const std::filesystem::path& folder);
// Does the same for these folders alone, which are some of class_folders(folder).
LabelledPictures pictures_in_folders(const std::filesystem::path& folder,
                                     const std::vector<std::filesystem::path>& classes);

// Finds all pictures below a folder, in the order of their names, and leaves out what
// pictures_in_folders() does. Throws DataError if there is no folder.
std::vector<std::filesystem::path> pictures_below(const std::filesystem::path& folder,
                                                  std::vector<LabelledPictures::LeftOut>& left_out);

// Returns "left out: 3 × .gif (the first is pets/cat/x.gif); 1 × hidden (pets/cat/.y.png)", or ""
// if nothing was left out.
std::string in_words(const std::vector<LabelledPictures::LeftOut>& left_out);

// Lines of PATH,LABEL in their order: the label is what follows the last comma, a path begins where
// the file lies, and either may stand in double quotes, with commas in it, and "" for a quote. A
// first line that names no picture is a heading. Throws DataError where the file cannot be read,
// and, naming the line, where a path or a label lacks or a quote stands alone. Whether the pictures
// are there is not looked at.
LabelledPictures pictures_in_csv(const std::filesystem::path& file);

}  // namespace ringgrad
