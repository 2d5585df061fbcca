// Finds pictures and their classes: in one folder for each class, or in the lines of a .csv file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ringgrad {

struct LabelledPictures {
  struct Picture {
    std::filesystem::path file;
    int64_t label;  // the number of its class
  };
  struct LeftOut {
    // The kind: ".heic", "hidden", "link to a folder", "no regular file", "beside the classes".
    std::string kind;
    int64_t count;
    std::filesystem::path first;
  };
  std::vector<std::string> classes;  // sorted by name
  std::vector<Picture> pictures;
  std::vector<LeftOut> left_out;  // entries that are not pictures, by kind
};

// Returns the folders in `folder` that can be classes, in the order of their names. Excluded are
// folders whose names begin with a dot, and links to `folder` or above it, which would contain
// everything again. Throws DataError if there is no folder.
std::vector<std::filesystem::path> class_folders(const std::filesystem::path& folder);

// Finds FOLDER/cat/1.jpg, FOLDER/cat/more/2.png, FOLDER/dog/1.ppm: classes and pictures in the
// order of their names. It leaves out files that are not called .png, .jpg, .jpeg, .webp, .gif,
// .bmp, .tif, .tiff, .ppm or .pgm, and hidden files and folders, whose names begin with a dot. It
// also leaves out links to folders inside a class, and pictures that lie in no class's folder.
// Throws DataError if there is no folder, no class in it, or no picture of a class.
LabelledPictures pictures_in_folders(const std::filesystem::path& folder);
// Does the same for these folders alone, which are some of class_folders(folder).
LabelledPictures pictures_in_folders(const std::filesystem::path& folder,
                                     const std::vector<std::filesystem::path>& classes);

// Finds all pictures below a folder, in the order of their names, and leaves out what
// pictures_in_folders() does. Throws DataError if there is no folder.
std::vector<std::filesystem::path> pictures_below(const std::filesystem::path& folder,
                                                  std::vector<LabelledPictures::LeftOut>& left_out);

// Returns "left out: 3 × .heic (the first is pets/cat/x.heic); 1 × hidden (pets/cat/.y.png)", or ""
// if nothing was left out.
std::string in_words(const std::vector<LabelledPictures::LeftOut>& left_out);

// Reads lines of PATH,LABEL in their order. The label follows the last comma, and a relative path
// begins at the file's folder. Either may be in double quotes, may then contain commas, and writes
// a quote as "". If the first line names no picture, it is a heading. Throws DataError if the file
// cannot be read. Throws DataError that names the line if a path or a label is missing or a quote
// stands alone. Does not check that the pictures exist.
LabelledPictures pictures_in_csv(const std::filesystem::path& file);

}  // namespace ringgrad
