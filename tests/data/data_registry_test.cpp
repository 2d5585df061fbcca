// Data sets by name: the places where they are looked for, the messages when they are missing, and
// making, getting and checking them.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "ringgrad/core/base/sha256.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/datasets/dataset_files.h"
#include "ringgrad/data/datasets/get_dataset.h"
#include "ringgrad/data/formats/cifar.h"
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/data/loopback_server.h"
#include "ringgrad/tests/kernels/channel_statistics.h"

namespace ringgrad::test::data_registry_test {
namespace fs = std::filesystem;

namespace {

void write_tiny_mnist(const fs::path& folder, int64_t train, int64_t test) {
  fs::create_directories(folder);
  for (const auto& [prefix, n] : {std::pair{"train", train}, std::pair{"t10k", test}}) {
    write_idx(folder / (std::string(prefix) + "-images-idx3-ubyte"), {n, 28, 28},
              Bytes(n * 784, 5));
    write_idx(folder / (std::string(prefix) + "-labels-idx1-ubyte"), {n}, Bytes(n, 3));
  }
}

void write_tiny_cifar(const CifarFormat& format, const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& files : {format.train_files, format.test_files})
    for (const auto& file : files)
      write_cifar(format, folder / file, Bytes(format.label_bytes, 1), Bytes(3072, 9));
}

}  // namespace

TEST_CASE("registry: the catalog holds together", "[quick]") {
  for (const DatasetInfo& info : datasets()) {
    INFO(info.name);
    REQUIRE(&dataset_info(info.name) == &info);
    REQUIRE(static_cast<int64_t>(info.mean.size()) == info.channels);
    REQUIRE(static_cast<int64_t>(info.std.size()) == info.channels);
    REQUIRE(info.classes.size() == (info.name == "cifar100" ? 100 : 10));
    REQUIRE(std::set<std::string>(info.classes.begin(), info.classes.end()).size() ==
            info.classes.size());
    uint64_t bytes = 0;
    for (const DatasetFile& file : info.files) {
      REQUIRE(file.sha256.size() == 64);
      bytes += file.bytes;
    }
    const auto records = static_cast<uint64_t>(info.train_size + info.test_size);
    const auto pixels = static_cast<uint64_t>(info.channels * info.image_size * info.image_size);
    REQUIRE(bytes == (info.format == DatasetInfo::Idx        ? records * (pixels + 1) + 48
                      : info.format == DatasetInfo::Cifar100 ? records * (pixels + 2)
                                                             : records * (pixels + 1)));
    REQUIRE((info.draw != nullptr) == info.downloads.empty());
    for (const DatasetDownload& download : info.downloads) {
      REQUIRE(download.sha256.size() == 64);
      for (const std::string& url : download.urls) REQUIRE(url.starts_with("https://"));
    }
  }
  REQUIRE(error_of<Error>([] { dataset_info("minst"); }) ==
          "data: no data set 'minst'; there are digits, shapes, mnist, cifar10, cifar100");
}

TEST_CASE("registry: data sets are found where people keep them", "[quick]") {
  TempFolder folder;
  for (const char* place : {"mnist", "MNIST/raw", "."}) {
    write_tiny_mnist(folder / place, 4, 2);
    REQUIRE(load_dataset("mnist", Split::Train, folder.path()).size() == 4);
    REQUIRE(load_dataset("mnist", Split::Test, folder.path()).size() == 2);
    for (const auto& name : folder.names()) fs::remove_all(folder / name);
  }
  for (const char* place :
       {"cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "."}) {
    write_tiny_cifar(kCifar10, folder / place);
    REQUIRE(load_dataset("cifar10", Split::Train, folder.path()).size() == 5);
    for (const auto& name : folder.names()) fs::remove_all(folder / name);
  }
  write_tiny_cifar(kCifar100, folder / "cifar-100-binary");
  const ImageDataset test = load_dataset("cifar100", Split::Test, folder.path());
  REQUIRE(test.classes[1] == "aquarium_fish");
  REQUIRE(to_vector<int64_t>(test.labels) == std::vector<int64_t>{1});
}

TEST_CASE("registry: a missing data set says how to get it, a missing file says which", "[quick]") {
  TempFolder folder;
  const std::string error =
      error_of<DataError>([&] { load_dataset("mnist", Split::Train, folder.path()); });
  REQUIRE(error == (folder / "mnist").string() +
                       " has no MNIST, and nothing is downloaded by itself.\n"
                       "  get it     ringgrad data get mnist --data-dir " +
                       folder.path().string() +
                       "  (11.6 MB, https, SHA-256 checked)\n"
                       "  offline    --data digits");
  REQUIRE(
      contains(error_of<DataError>([&] { check_dataset(dataset_info("digits"), folder.path()); }),
               "ringgrad data make digits"));
  REQUIRE(folder.names().empty());

  write_tiny_mnist(folder / "mnist", 4, 2);
  fs::remove(folder / "mnist/t10k-labels-idx1-ubyte");
  REQUIRE(load_dataset("mnist", Split::Train, folder.path()).size() == 4);
  REQUIRE(contains(error_of<DataError>([&] { load_dataset("mnist", Split::Test, folder.path()); }),
                   (folder / "mnist").string() + " has no t10k-labels-idx1-ubyte, and nothing"));
  write_tiny_cifar(kCifar10, folder / "cifar10");
  fs::remove(folder / "cifar10/data_batch_4.bin");
  REQUIRE(load_dataset("cifar10", Split::Test, folder.path()).size() == 1);
  REQUIRE(
      contains(error_of<DataError>([&] { load_dataset("cifar10", Split::Train, folder.path()); }),
               "has no data_batch_4.bin"));
  // Only IDX files are read packed.
  write_bytes(folder / "cifar10/data_batch_4.bin.gz", gzip(Bytes(3073, 1)));
  REQUIRE(
      contains(error_of<DataError>([&] { load_dataset("cifar10", Split::Train, folder.path()); }),
               "has no data_batch_4.bin"));
}

TEST_CASE("registry: images of another size than the networks expect are refused", "[quick]") {
  TempFolder folder;
  write_tiny_mnist(folder / "mnist", 4, 20);
  const fs::path images = folder / "mnist/t10k-images-idx3-ubyte";
  write_idx(images, {20, 2, 2}, Bytes(80, 5));
  REQUIRE(load_dataset("mnist", Split::Train, folder.path()).size() == 4);
  REQUIRE(error_of<DataError>([&] { load_dataset("mnist", Split::Test, folder.path()); }) ==
          "data: " + images.string() +
              ": holds images of shape [20, 1, 2, 2], expected [20, 1, 28, 28] as MNIST has");
}

TEST_CASE("registry: drawn data sets are made when they are first loaded, and checked", "[quick]") {
  TempFolder folder;
  const DatasetInfo& info = dataset_info("digits");
  REQUIRE(load_dataset("digits", Split::Test, folder.path()).size() == 2000);
  CheckedDataset checked = check_dataset(info, folder.path());
  REQUIRE(checked.folder == folder / "digits");
  REQUIRE(checked.train_size == 12000);
  REQUIRE(checked.files.size() == 4);
  for (const CheckedFile& file : checked.files) REQUIRE(file.as_published);
  fs::remove(folder / "digits/t10k-labels-idx1-ubyte");
  REQUIRE(load_dataset("digits", Split::Test, folder.path()).size() == 2000);

  // Another file of the same form is found out, and remade on demand.
  write_tiny_mnist(folder / "digits", 4, 2);
  checked = check_dataset(info, folder.path());
  REQUIRE(checked.train_size == 4);
  for (const CheckedFile& file : checked.files) REQUIRE_FALSE(file.as_published);
  make_dataset(info, folder.path());
  REQUIRE(check_dataset(info, folder.path()).files[0].as_published);
  REQUIRE_THROWS_AS(make_dataset(dataset_info("mnist"), folder.path()), Error);
  REQUIRE_THROWS_AS(get_dataset(info, folder.path()), Error);

  // A file in place of the folder.
  write_bytes(folder / "shapes", Bytes{1});
  REQUIRE_THROWS_AS(load_dataset("shapes", Split::Train, folder.path()), IoError);
}

TEST_CASE("registry: several ranks may load a drawn data set at once that is not there yet",
          "[quick][threads]") {
  TempFolder folder;
  std::atomic<int> right{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&] {
      const std::string error = error_of<Error>(
          [&] { right += load_dataset("digits", Split::Test, folder.path()).size() == 2000; });
      if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
    });
  for (auto& rank : ranks) rank.join();
  REQUIRE(right == 3);
  REQUIRE(std::distance(fs::directory_iterator(folder / "digits"), {}) == 4);
}

TEST_CASE("registry: get downloads, unpacks, skips what is there and fixes what is damaged",
          "[quick]") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  // A small MNIST and a small CIFAR-100 archive to be served.
  TempFolder origin;
  TempFolder folder;
  write_tiny_mnist(origin.path(), 4, 2);
  write_tiny_cifar(kCifar100, origin / "cifar-100-binary");
  REQUIRE(std::system(("cd '" + origin.path().string() + "' && tar czf c.tar.gz cifar-100-binary")
                          .c_str()) == 0);
  std::atomic<bool> break_first_mirror{false};
  LoopbackServer server([&](int connection, const std::string& path) {
    if (break_first_mirror && path.starts_with("first/")) return;
    const Bytes body = read_bytes(origin.path() / fs::path(path).filename());
    send_all(connection, ok(body.size()) + std::string(body.begin(), body.end()));
  });

  DatasetInfo mnist = dataset_info("mnist");
  DatasetInfo cifar = dataset_info("cifar100");
  mnist.downloads.clear();
  for (DatasetFile& file : mnist.files) {
    const Bytes plain = read_bytes(origin / file.name);
    const Bytes packed = gzip(plain);
    file.bytes = plain.size();
    file.sha256 = sha256_hex(plain);
    const std::string gz = file.name + ".gz";
    write_bytes(origin / gz, packed);
    mnist.downloads.push_back({{server.url("first/" + gz), server.url("second/" + gz)},
                               gz,
                               packed.size(),
                               sha256_hex(packed),
                               {}});
  }
  for (DatasetFile& file : cifar.files) file.bytes = 3074;
  for (DatasetFile& file : cifar.files)
    file.sha256 = sha256_file(origin / ("cifar-100-binary/" + file.name));
  cifar.downloads = {{{server.url("c.tar.gz")},
                      "c.tar.gz",
                      fs::file_size(origin / "c.tar.gz"),
                      sha256_file(origin / "c.tar.gz"),
                      {{"cifar-100-binary/train.bin", 3074}, {"cifar-100-binary/test.bin", 3074}}}};

  const DownloadOptions loopback{.allow_http_to_loopback = true, .stall_seconds = 5};
  std::set<std::string> told;
  auto progress = [&](const std::string& file, uint64_t, uint64_t) { told.insert(file); };
  REQUIRE(get_dataset(mnist, folder.path(), progress, loopback) == folder / "mnist");
  REQUIRE(told.size() == 4);
  REQUIRE(server.requests() == 4);
  REQUIRE(check_dataset(mnist, folder.path()).files[3].as_published);
  REQUIRE(std::distance(fs::directory_iterator(folder / "mnist"), {}) == 4);  // no .gz, no part

  get_dataset(mnist, folder.path(), {}, loopback);
  REQUIRE(server.requests() == 4);  // all there
  write_bytes(folder / "mnist/train-labels-idx1-ubyte", Bytes(12, 1));
  break_first_mirror = true;
  get_dataset(mnist, folder.path(), {}, loopback);
  REQUIRE(server.requests() == 6);  // one file, from the second place after the first
  REQUIRE(check_dataset(mnist, folder.path()).train_size == 4);

  fs::remove(folder / "mnist/train-labels-idx1-ubyte");
  for (DatasetDownload& what : mnist.downloads) what.urls = {server.url("one"), server.url("two")};
  const std::string both =
      error_of<DataError>([&] { get_dataset(mnist, folder.path(), {}, loopback); });
  REQUIRE((contains(both, server.url("one")) &&
           contains(both, "; and download: " + server.url("two"))));

  get_dataset(cifar, folder.path(), {}, loopback);
  REQUIRE(load_dataset("cifar100", Split::Train, folder.path()).size() == 1);
  REQUIRE(std::distance(fs::directory_iterator(folder / "cifar100"), {}) == 2);

  // The archive's hash is wrong: nothing changes.
  fs::remove(folder / "cifar100/test.bin");
  cifar.downloads[0].sha256[0] ^= 1;
  REQUIRE_THROWS_AS(get_dataset(cifar, folder.path(), {}, loopback), DataError);
  REQUIRE(std::distance(fs::directory_iterator(folder / "cifar100"), {}) == 1);
}

TEST_CASE("registry: real data has the published statistics") {
  const char* root = std::getenv("RINGGRAD_DATA_DIR");
  for (const char* name : {"mnist", "cifar10"}) {
    const DatasetInfo& info = dataset_info(name);
    if (!root || !find_dataset(info, root)) {
      WARN("RINGGRAD_DATA_DIR has no " << name << ": skipped");
      continue;
    }
    const ImageDataset train = load_dataset(name, Split::Train, root);
    REQUIRE(train.size() == info.train_size);
    REQUIRE(load_dataset(name, Split::Test, root).size() == info.test_size);
    const ChannelStatistics statistics = channel_statistics(train);
    for (size_t c = 0; c < info.mean.size(); ++c) {
      REQUIRE(std::abs(statistics.mean[c] - info.mean[c]) < 0.001);
      // Copies that went through JPEG are a bit softer.
      REQUIRE(std::abs(statistics.std[c] - info.std[c]) < 0.003);
    }
  }
}

}  // namespace ringgrad::test::data_registry_test
