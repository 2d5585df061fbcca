// EventFile: writes the file that TensorBoard reads. Its records are serialised tensorflow.Events
// with scalars.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace ringgrad::program {

// A record is its length (8 bytes, little-endian), the masked CRC-32C of these (4), the event, and
// that one's masked CRC (tensorflow/core/lib/io/record_writer.h). The messages are
// tensorflow/core/util/event.proto and summary.proto, of which this needs five fields. Not
// thread-safe.
class EventFile {
 public:
  // Makes DIRECTORY/events.out.tfevents.SECONDS.HOST.PID, where `tensorboard --logdir` finds it.
  // Throws IoError.
  explicit EventFile(const std::filesystem::path& directory);

  // Those of one step. Readers see them at once. Throws IoError.
  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void write(const std::string& event);
  void check_written() const;  // throws IoError

  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace ringgrad::program
