#include "ringgrad/data/datasets/catalog.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/synthetic/digits.h"
#include "ringgrad/data/synthetic/shapes.h"

namespace ringgrad {
namespace {

const std::vector<std::string> kTenDigits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

DatasetInfo digits() {
  return {.name = "digits",
          .title = "digits",
          .about = "handwritten-looking digits, drawn here in a moment, in MNIST's files",
          .format = DatasetInfo::Idx,
          .train_size = 12000,
          .test_size = 2000,
          .channels = 1,
          .image_size = 28,
          .mean = {0.0872f},
          .std = {0.1905f},
          .classes = kTenDigits,
          .files = {{"train-images-idx3-ubyte", 9408016,
                     "6c12f56960f74bc7d3e2672496d3208a1f3d50cb5416948d74a4867229f8f5f8"},
                    {"train-labels-idx1-ubyte", 12008,
                     "62a31bd879b73088b26c066c59c9794256c5fe723a55f6d974a9243cd4e96deb"},
                    {"t10k-images-idx3-ubyte", 1568016,
                     "953603ffcfbf5eefe506a606200d21cf36baf9371c3a967e0337c64d7f17a1d5"},
                    {"t10k-labels-idx1-ubyte", 2008,
                     "8a5d218475397cb9a02c7241babe7bd8bd00952b23c0c320ba260b47a40a81ac"}},
          .draw = make_digits};
}

DatasetInfo shapes() {
  return {.name = "shapes",
          .title = "shapes",
          .about = "coloured figures and textures, drawn here in a moment, in CIFAR-10's files",
          .format = DatasetInfo::Cifar10,
          .train_size = 10000,
          .test_size = 2000,
          .channels = 3,
          .image_size = 32,
          .mean = {0.4988f, 0.4958f, 0.4991f},
          .std = {0.2530f, 0.2525f, 0.2524f},
          .classes = shape_classes(),
          .files = {{"data_batch_1.bin", 6146000,
                     "d03fc1b9f5ad970552ad083e9fb7041c6d51631743b4baa7874d04a3ecdb7b07"},
                    {"data_batch_2.bin", 6146000,
                     "e0a3f13276b7654ed96aef362d0203b877dad1b51410b2a719afa65f0c399bb5"},
                    {"data_batch_3.bin", 6146000,
                     "e1da74f9f96ea16d446380d87c221ac7e705d1b8d5fa85c22837cdd7aac1d8b0"},
                    {"data_batch_4.bin", 6146000,
                     "a5a71b2be388dc63016cae99c4933c20b9d52cd65743b532715054544c0419f0"},
                    {"data_batch_5.bin", 6146000,
                     "ced9f16d35d8788c185bc947f5f02e1c87447f91e5c34a8e25e8b260e7ac4d07"},
                    {"test_batch.bin", 6146000,
                     "eb6499abd1334945528132a4dce2f1c2db62e7eb9039b00904b17100b53e6ec4"}},
          .draw = make_shapes};
}

DatasetDownload mnist_file(const std::string& name, uint64_t bytes, const std::string& sha256) {
  return {{"https://ossci-datasets.s3.amazonaws.com/mnist/" + name,
           "https://storage.googleapis.com/cvdf-datasets/mnist/" + name},
          name,
          bytes,
          sha256};
}

DatasetInfo mnist() {
  return {
      .name = "mnist",
      .title = "MNIST",
      .about = "handwritten digits (LeCun, Cortes and Burges 1998)",
      .format = DatasetInfo::Idx,
      .train_size = 60000,
      .test_size = 10000,
      .channels = 1,
      .image_size = 28,
      .mean = {0.1307f},
      .std = {0.3081f},
      .classes = kTenDigits,
      .files = {{"train-images-idx3-ubyte", 47040016,
                 "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
                {"train-labels-idx1-ubyte", 60008,
                 "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
                {"t10k-images-idx3-ubyte", 7840016,
                 "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
                {"t10k-labels-idx1-ubyte", 10008,
                 "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
      .folders = {"MNIST/raw", "."},
      .downloads = {mnist_file("train-images-idx3-ubyte.gz", 9912422,
                               "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                    mnist_file("train-labels-idx1-ubyte.gz", 28881,
                               "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                    mnist_file("t10k-images-idx3-ubyte.gz", 1648877,
                               "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                    mnist_file("t10k-labels-idx1-ubyte.gz", 4542,
                               "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6")},
      .stand_in = "digits"};
}

// Krizhevsky's archives hold all files in one folder. Users unpack it in different places.
DatasetInfo in_archive(DatasetInfo info, const std::string& folder, const std::string& name,
                       uint64_t bytes, const std::string& sha256) {
  info.folders = {folder, info.name + "/" + folder, "."};
  info.downloads = {{{"https://www.cs.toronto.edu/~kriz/" + name}, name, bytes, sha256}};
  for (const DatasetFile& file : info.files)
    info.downloads[0].members[folder + "/" + file.name] = file.bytes;
  return info;
}

DatasetInfo cifar10() {
  const DatasetInfo info{
      .name = "cifar10",
      .title = "CIFAR-10",
      .about = "small photographs of ten kinds of things (Krizhevsky 2009)",
      .format = DatasetInfo::Cifar10,
      .train_size = 50000,
      .test_size = 10000,
      .channels = 3,
      .image_size = 32,
      .mean = {0.4914f, 0.4822f, 0.4465f},
      .std = {0.2470f, 0.2435f, 0.2616f},
      .classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
                  "truck"},
      .files = {{"data_batch_1.bin", 30730000,
                 "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
                {"data_batch_2.bin", 30730000,
                 "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
                {"data_batch_3.bin", 30730000,
                 "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
                {"data_batch_4.bin", 30730000,
                 "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
                {"data_batch_5.bin", 30730000,
                 "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
                {"test_batch.bin", 30730000,
                 "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
      .stand_in = "shapes"};
  return in_archive(info, "cifar-10-batches-bin", "cifar-10-binary.tar.gz", 170052171,
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd");
}

DatasetInfo cifar100() {
  const DatasetInfo info{
      .name = "cifar100",
      .title = "CIFAR-100",
      .about = "small photographs of a hundred kinds of things (Krizhevsky 2009)",
      .format = DatasetInfo::Cifar100,
      .train_size = 50000,
      .test_size = 10000,
      .channels = 3,
      .image_size = 32,
      .mean = {0.5071f, 0.4865f, 0.4409f},
      .std = {0.2673f, 0.2564f, 0.2762f},
      .classes = {"apple",    "aquarium_fish", "baby",       "bear",         "beaver",
                  "bed",      "bee",           "beetle",     "bicycle",      "bottle",
                  "bowl",     "boy",           "bridge",     "bus",          "butterfly",
                  "camel",    "can",           "castle",     "caterpillar",  "cattle",
                  "chair",    "chimpanzee",    "clock",      "cloud",        "cockroach",
                  "couch",    "crab",          "crocodile",  "cup",          "dinosaur",
                  "dolphin",  "elephant",      "flatfish",   "forest",       "fox",
                  "girl",     "hamster",       "house",      "kangaroo",     "keyboard",
                  "lamp",     "lawn_mower",    "leopard",    "lion",         "lizard",
                  "lobster",  "man",           "maple_tree", "motorcycle",   "mountain",
                  "mouse",    "mushroom",      "oak_tree",   "orange",       "orchid",
                  "otter",    "palm_tree",     "pear",       "pickup_truck", "pine_tree",
                  "plain",    "plate",         "poppy",      "porcupine",    "possum",
                  "rabbit",   "raccoon",       "ray",        "road",         "rocket",
                  "rose",     "sea",           "seal",       "shark",        "shrew",
                  "skunk",    "skyscraper",    "snail",      "snake",        "spider",
                  "squirrel", "streetcar",     "sunflower",  "sweet_pepper", "table",
                  "tank",     "telephone",     "television", "tiger",        "tractor",
                  "train",    "trout",         "tulip",      "turtle",       "wardrobe",
                  "whale",    "willow_tree",   "wolf",       "woman",        "worm"},
      .files = {{"train.bin", 153700000,
                 "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"},
                {"test.bin", 30740000,
                 "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"}},
      .stand_in = "shapes"};
  return in_archive(info, "cifar-100-binary", "cifar-100-binary.tar.gz", 168513733,
                    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec");
}

}  // namespace

const std::vector<DatasetInfo>& datasets() {
  static const std::vector<DatasetInfo> all{digits(), shapes(), mnist(), cifar10(), cifar100()};
  return all;
}

const DatasetInfo& dataset_info(std::string_view name) {
  std::string names;
  for (const DatasetInfo& info : datasets()) {
    if (info.name == name) return info;
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(str("data: no data set '", name, "'; there are ", names));
}

}  // namespace ringgrad
