// Where data sets lie, whatever the current directory is.
#pragma once

#include <string>

namespace ringgrad {

struct DataPlace {
  std::string directory;
  std::string why;  // "RINGGRAD_DATA_DIR", for people
};

// What is given, else RINGGRAD_DATA_DIR, else data/files of the checkout that the running program
// lies in, if there is something in it, else $XDG_DATA_HOME/ringgrad, which is
// ~/.local/share/ringgrad unless that variable says otherwise. A user without a home has
// data/files, where he stands.
DataPlace data_place(const std::string& given = "");

}  // namespace ringgrad
