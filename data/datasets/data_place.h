// The directory of the data sets, which does not depend on the current directory.
#pragma once

#include <string>

namespace ringgrad {

struct DataPlace {
  std::string directory;
  std::string why;  // the source, such as "RINGGRAD_DATA_DIR", for the user
};

// Returns the first of these: `given` if not empty; RINGGRAD_DATA_DIR if set; data/files of the
// checkout that contains the running program, if that folder is not empty; $XDG_DATA_HOME/ringgrad,
// which defaults to ~/.local/share/ringgrad. For a user without a home it is data/files in the
// current directory.
DataPlace data_place(const std::string& given = "");

}  // namespace ringgrad
