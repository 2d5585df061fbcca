// Folders of pictures, and the pictures of every format: tests/fuzz/corpus/image has some.
#include "ringgrad/data/image_folder.h"

#include <sys/stat.h>

#include "ringgrad/core/factory.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::image_folder_test {
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_bytes(file, Bytes(text.begin(), text.end()));
}

// A picture of 2 x 1 pixels.
const std::string kGray = "P5\n2 1\n255\n\x33\xcc";
const std::string kColour = "P6\n2 1\n255\n\xff\x01\x02\x03\x04\x05";

fs::path corpus(const char* name) { return fs::path(RINGGRAD_PICTURES) / name; }

int64_t pixel(const Tensor& image, int64_t c, int64_t y, int64_t x) {
  return image.data<uint8_t>()[(c * image.size(1) + y) * image.size(2) + x];
}

}  // namespace

TEST_CASE("image folder: classes and pictures by their names, resized and normalised", "[quick]") {
  const TempFolder folder;
  write(folder / "dog/b.pgm", kGray);
  write(folder / "dog/a.PPM", kColour);
  write(folder / "cat/deep/1.pgm", kGray);
  write(folder / "cat/notes.txt", "no picture");
  write(folder / "readme.txt", "no class");
  const ImageFolder pictures(folder.path(), {.size = 2, .mean = {0.5f}, .std = {0.5f}});
  CHECK(pictures.classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(pictures.size() == 3);
  CHECK(pictures.file(1).filename() == "a.PPM");
  const Example gray = pictures.get(0);
  const Example colour = pictures.get(1);
  CHECK(gray.target.item<int64_t>() == 0);
  CHECK(colour.target.item<int64_t>() == 1);
  const float dark = 2 * 0x33 / 255.0f - 1;
  const float light = 2 * 0xcc / 255.0f - 1;
  const std::vector<float> plane = {dark, light, dark, light};
  std::vector<float> planes;
  for (int c = 0; c < 3; ++c) planes.insert(planes.end(), plane.begin(), plane.end());
  CHECK(difference(gray.data, std::vector<double>(planes.begin(), planes.end()),
                   {DType::Float32, 4}) == "");
  CHECK(colour.data.shape() == Shape{3, 2, 2});
  CHECK(colour.data.data<float>()[0] == Approx(1));  // 255, and two roundings
  CHECK_THROWS_AS(pictures.get(3), IndexError);
}

TEST_CASE("image folder: a loader makes batches of it", "[quick][threads]") {
  const TempFolder folder;
  for (const char* name : {"a/1.pgm", "a/2.pgm", "b/1.pgm"}) write(folder / name, kGray);
  const auto pictures =
      std::make_shared<ImageFolder>(folder.path(), ImageFolderOptions{.size = 4, .channels = 1});
  DataLoader loader(pictures, std::make_shared<SequentialSampler>(3),
                    {.batch_size = 3, .num_workers = 2});
  for (const Batch& batch : loader) {
    CHECK(batch.data.shape() == Shape{3, 1, 4, 4});
    CHECK(to_vector<int64_t>(batch.target) == std::vector<int64_t>{0, 0, 1});
  }
}

TEST_CASE("image folder: what is wrong is said with the name of the file", "[quick]") {
  const TempFolder folder;
  const std::string root = folder.path().string();
  const auto refused = [&](const std::string& text) {
    require_error<DataError>(text, [&] { ImageFolder{folder.path()}; });
  };
  refused(root + " has no folder in it");
  fs::create_directory(folder / "empty");
  refused(root + "/empty has no picture");
  require_error<DataError>("nowhere: No such file or directory",
                           [&] { ImageFolder{folder / "nowhere"}; });
  require_error<Error>("ImageFolder: 8 pixels a side and 2 channels",
                       [&] { ImageFolder(folder.path(), {.size = 8, .channels = 2}); });
  write(folder / "empty/short.pgm", kGray.substr(0, kGray.size() - 1));
  write(folder / "empty/text.png", "a text");
  const ImageFolder pictures(folder.path());
  require_error<DataError>("empty/short.pgm: 1 bytes of pixels from offset 11, expected 2",
                           [&] { pictures.get(0); });
  require_error<DataError>("empty/text.png is no picture of a format that is read",
                           [&] { pictures.get(1); });
}

TEST_CASE("pictures in a list: quotes, commas in paths, a heading, and which line is wrong",
          "[quick]") {
  const TempFolder folder;
  const auto list = [&](const std::string& text) {
    write(folder / "list.csv", text);
    return pictures_in_csv(folder / "list.csv");
  };
  const LabelledPictures found = list(
      "\xef\xbb\xbf"
      "file,what\r\na, b.png,dog\r\n\r\n\"c.jpg\", \"cat\" \n/d.PPM,dog");
  CHECK(found.classes == std::vector<std::string>{"cat", "dog"});
  REQUIRE(found.pictures.size() == 3);
  CHECK(found.pictures[0].file == folder / "a, b.png");
  CHECK(found.pictures[1].file == folder / "c.jpg");
  CHECK(found.pictures[2].file == "/d.PPM");
  CHECK(found.pictures[0].label == 1);
  CHECK(found.pictures[1].label == 0);
  CHECK(list("a.png,x").pictures.size() == 1);  // no heading
  for (const char* wrong : {"a.png,x\nb.png", "a.png,x\n,y", "a.png,x\nb.png,"})
    require_error<DataError>("list.csv: line 2 lacks a path or a label", [&] { list(wrong); });
  require_error<DataError>("names no picture", [&] { list("path,label\n"); });
  require_error<DataError>("nowhere.csv: No such file",
                           [&] { pictures_in_csv(folder / "nowhere.csv"); });
  REQUIRE(::mkfifo((folder / "pipe.csv").c_str(), 0600) == 0);
  require_error<DataError>("pipe.csv is not a regular file",
                           [&] { pictures_in_csv(folder / "pipe.csv"); });
}

TEST_CASE("pictures in a list: what stands in quotes, as RFC 4180 has it, and all ends of a line",
          "[quick]") {
  const TempFolder folder;
  const auto list = [&](const std::string& text) {
    write(folder / "list.csv", text);
    return pictures_in_csv(folder / "list.csv");
  };
  const LabelledPictures found = list(
      "\"a, b.png\",\"cats, all "
      "of them\"\r\r\"say \"\"hi\"\".png\",\"the \"\"dog\"\"\"\rc.png,cow");
  CHECK(found.classes == std::vector<std::string>{"cats, all of them", "cow", "the \"dog\""});
  REQUIRE(found.pictures.size() == 3);
  CHECK(found.pictures[0].file == folder / "a, b.png");
  CHECK(found.pictures[1].file == folder / "say \"hi\".png");
  CHECK(found.pictures[2].file == folder / "c.png");
  for (const char* alone :
       {"\"b.png,x", "b.png,x\"", "b\".png,x", "\"b\".png,x", "\"b.png\"\",x", "b.png,\"x\"y"})
    require_error<DataError>("list.csv: line 2 has a quote that stands alone",
                             [&] { list(str("a.png,x\r\n", alone, "\r\nc.png,y\r\n")); });
}

TEST_CASE("image folder: links to nowhere are no pictures, and links above it no classes",
          "[quick]") {
  const TempFolder folder;
  write(folder / "in/dog/a.pgm", kGray);
  write(folder / "else/b.pgm", kGray);
  fs::create_symlink("c.pgm", folder / "in/dog/c.pgm");  // itself
  fs::create_symlink("self", folder / "in/self");
  fs::create_symlink(".", folder / "in/loop");
  fs::create_symlink("../..", folder / "in/above");
  fs::create_symlink("../else", folder / "in/cat");  // this one is a class
  const LabelledPictures found = pictures_in_folders(folder / "in");
  CHECK(found.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(found.pictures.size() == 2);
}

TEST_CASE("pictures: resized by the definition, a triangle over both sides", "[quick]") {
  const Tensor image = empty({3, 7, 5}, {.dtype = DType::UInt8});
  for (int64_t i = 0; i < image.numel(); ++i)
    image.data<uint8_t>()[i] = static_cast<uint8_t>(i * 97 % 251);
  for (const int64_t size : {1, 3, 5, 12}) {
    const Tensor fitted = fit_image(image, 3, size);
    for (int64_t i = 0; i < fitted.numel(); ++i) {
      const int64_t c = i / (size * size);
      const int64_t row = i / size % size;
      const int64_t column = i % size;
      const double sy = 7.0 / static_cast<double>(size);
      const double sx = 5.0 / static_cast<double>(size);
      double sum = 0;
      double weight = 0;
      for (int64_t y = 0; y < 7; ++y)
        for (int64_t x = 0; x < 5; ++x) {
          const double dy =
              std::abs(static_cast<double>(y) + 0.5 - (static_cast<double>(row) + 0.5) * sy);
          const double dx =
              std::abs(static_cast<double>(x) + 0.5 - (static_cast<double>(column) + 0.5) * sx);
          const double w =
              std::max(0.0, std::max(1.0, sy) - dy) * std::max(0.0, std::max(1.0, sx) - dx);
          sum += w * static_cast<double>(pixel(image, c, y, x));
          weight += w;
        }
      REQUIRE(std::abs(fitted.data<float>()[i] - sum / weight) < 1e-3);
    }
  }
}

TEST_CASE("pictures: PNG", "[quick]") {
  if (!reads_pictures("PNG")) return;
  CHECK(read_image(corpus("gray.png")).size(0) == 1);
  // 16 bits without a gamma: 0, 257, 25700 and 65535.
  CHECK(to_vector<uint8_t>(read_image(corpus("sixteen.png"))) ==
        std::vector<uint8_t>{0, 1, 100, 255});
  // (10, 200, 0) with an alpha of 0, 64, 128 and 255, before white: as Pillow and browsers mix
  // them.
  CHECK(to_vector<uint8_t>(read_image(corpus("transparent.png"))) ==
        std::vector<uint8_t>{255, 194, 132, 10, 255, 241, 227, 200, 255, 191, 127, 0});
}

TEST_CASE("pictures: JPEG, and what is wrong with one", "[quick]") {
  if (!reads_pictures("JPEG")) return;
  const Tensor colour = read_image(corpus("two.jpg"));
  const Tensor gray = read_image(corpus("gray.jpg"));
  REQUIRE(colour.shape() == Shape{3, 16, 32});
  const int64_t left[] = {200, 30, 40};
  const int64_t right[] = {20, 60, 220};  // as they were before compression
  for (int64_t c = 0; c < 3; ++c) {
    CHECK(std::abs(pixel(colour, c, 8, 2) - left[c]) <= 3);
    CHECK(std::abs(pixel(colour, c, 8, 29) - right[c]) <= 3);
  }
  REQUIRE(gray.shape() == Shape{1, 8, 16});
  CHECK(pixel(gray, 0, 3, 3) == 77);

  const TempFolder folder;
  Bytes bytes = read_bytes(corpus("two.jpg"));
  const auto refused = [&](const char* name, const std::string& text) {
    write_bytes(folder / name, bytes);
    require_error<DataError>(std::string(name) + text, [&] { read_image(folder / name); });
  };
  bytes.resize(bytes.size() - 20);
  refused("cut.jpg", ": Premature end of JPEG file");
  bytes.resize(bytes.size() * 2 / 3);
  refused("cut_before.jpg", ": Bogus Huffman table definition");
  bytes.resize(3);
  refused("begun.jpg", ": ");
}

TEST_CASE("a JPEG is upright, however the camera was held", "[quick]") {
  if (!reads_pictures("JPEG")) return;
  const TempFolder folder;
  const Bytes file = read_bytes(corpus("two.jpg"));
  const Tensor stored = read_image(corpus("two.jpg"));
  const int64_t rows = stored.size(1);
  const int64_t columns = stored.size(2);
  REQUIRE(rows != columns);
  // EXIF 2.3, tag 274: which side of the picture the first row is, and which the first column.
  struct Held {
    const char* row;
    const char* column;
  };
  const Held held[] = {{"top", "left"}, {"top", "right"}, {"bottom", "right"}, {"bottom", "left"},
                       {"left", "top"}, {"right", "top"}, {"right", "bottom"}, {"left", "bottom"}};
  for (const bool little : {false, true})
    for (int orientation = 0; orientation <= 9; ++orientation) {
      CAPTURE(little, orientation);
      const char number = static_cast<char>(orientation);
      // The block's directory is behind one that another program has put there.
      const std::string directory =
          little ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) +
                       std::string{number, 0, 0, 0} + std::string(4, '\0')
                 : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18) +
                       std::string{0, number, 0, 0} + std::string(4, '\0');
      const std::string exif = std::string("Exif\0\0", 6) + directory;
      std::string text(file.begin(), file.begin() + 2);
      text += std::string("\xff\xe1\0\x0b", 4) + "http://ns";
      text += std::string{'\xff', '\xe1', 0, static_cast<char>(exif.size() + 2)} + exif;
      text.append(file.begin() + 2, file.end());
      write(folder / "held.jpg", text);
      const Tensor image = read_image(folder / "held.jpg");
      const bool says = orientation >= 1 && orientation <= 8;
      const auto& [row, column] = held[says ? orientation - 1 : 0];
      const bool turned = row == std::string("left") || row == std::string("right");
      REQUIRE(image.shape() == Shape{3, turned ? columns : rows, turned ? rows : columns});
      int64_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          int64_t y = 0;
          int64_t x = 0;
          const auto place = [&](const std::string& side, int64_t at) {
            if (side == "top") y = at;
            if (side == "bottom") y = image.size(1) - 1 - at;
            if (side == "left") x = at;
            if (side == "right") x = image.size(2) - 1 - at;
          };
          place(row, r);
          place(column, c);
          wrong += pixel(image, 1, y, x) != pixel(stored, 1, r, c);
        }
      CHECK(wrong == 0);
      // A truncated block says nothing, and is not read beyond its end.
      for (size_t size = 0; size < exif.size(); ++size) {
        const std::string part = exif.substr(0, size);
        std::string cut(file.begin(), file.begin() + 2);
        cut += std::string{'\xff', '\xe1', 0, static_cast<char>(part.size() + 2)} + part;
        cut.append(file.begin() + 2, file.end());
        write(folder / "cut.jpg", cut);
        CHECK(read_image(folder / "cut.jpg").dim() == 3);
      }
    }
}

TEST_CASE("a JPEG of inks becomes RGB", "[quick]") {
  if (!reads_pictures("JPEG")) return;
  const Tensor image = read_image(corpus("cmyk.jpg"));
  REQUIRE(image.shape() == Shape{3, 8, 8});
  // Pillow's, whose product of two of 255 parts is rounded otherwise.
  const int64_t expected[][5] = {
      {0, 0, 215, 0, 139}, {0, 7, 0, 0, 139}, {7, 0, 215, 215, 139}, {3, 4, 93, 93, 139}};
  for (const auto& [y, x, red, green, blue] : expected) {
    CAPTURE(y, x);
    CHECK(std::abs(pixel(image, 0, y, x) - red) <= 2);
    CHECK(std::abs(pixel(image, 1, y, x) - green) <= 2);
    CHECK(std::abs(pixel(image, 2, y, x) - blue) <= 2);
  }
}

// Pillow has written these, except for the interlaced one, and reads the same from all of them:
// colours.ppm has their pixels.
TEST_CASE("pictures: a picture is the same in every format without loss", "[quick]") {
  const std::pair<const char*, const char*> files[] = {{"WebP", "colours.webp"},
                                                       {"WebP", "animated.webp"},
                                                       {"WebP", "held.webp"},
                                                       {"GIF", "colours.gif"},
                                                       {"GIF", "interlaced.gif"},
                                                       {"GIF", "animated.gif"},
                                                       {"TIFF", "colours_lzw.tiff"},
                                                       {"TIFF", "colours_deflate.tiff"},
                                                       {"TIFF", "colours_packbits.tiff"},
                                                       {"TIFF", "held.tiff"},
                                                       {"PNG", "held.png"},
                                                       {"BMP", "colours.bmp"},
                                                       {"BMP", "palette.bmp"},
                                                       {"BMP", "masks.bmp"},
                                                       {"BMP", "os2.bmp"}};
  const Tensor expected = read_image(corpus("colours.ppm"));
  REQUIRE(expected.shape() == Shape{3, 4, 5});
  for (const auto& [format, file] : files) {
    CAPTURE(file);
    if (!reads_pictures(format)) continue;
    const Tensor image = read_image(corpus(file));
    REQUIRE(image.shape() == expected.shape());
    CHECK(to_vector<uint8_t>(image) == to_vector<uint8_t>(expected));
  }
}

TEST_CASE("pictures: alpha, inks and 16 bits of WebP, GIF and TIFF", "[quick]") {
  // As of PNG, above. libtiff multiplies by the alpha first, which rounds once more.
  const std::vector<uint8_t> expected = {255, 194, 132, 10, 255, 241, 227, 200, 255, 191, 127, 0};
  for (const auto& [format, file, most] :
       {std::tuple("WebP", "transparent.webp", 0), std::tuple("TIFF", "transparent.tiff", 1)}) {
    if (!reads_pictures(format)) continue;
    const auto found = to_vector<uint8_t>(read_image(corpus(file)));
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) <= most);
  }
  // A BMP's header of 56 bytes tells where the alpha is: 0, 64, 128 and 255.
  std::string header("BM\0\0\0\0\0\0\0\0\x46\0\0\0\x38\0\0\0\4\0\0\0\1\0\0\0\1\0\x20\0\3\0\0\0",
                     34);
  header += std::string(20, '\0') + std::string("\0\0\xff\0\0\xff\0\0\xff\0\0\0\0\0\0\xff", 16);
  const TempFolder folder;
  write(folder / "a.bmp",
        header + std::string("\0\xc8\x0a\0\0\xc8\x0a\x40\0\xc8\x0a\x80\0\xc8\x0a\xff", 16));
  CHECK(to_vector<uint8_t>(read_image(folder / "a.bmp")) == expected);
  if (reads_pictures("GIF"))
    CHECK(to_vector<uint8_t>(read_image(corpus("transparent.gif"))) ==
          std::vector<uint8_t>{10, 255, 200, 255, 0, 255});
  if (!reads_pictures("TIFF")) return;
  CHECK(to_vector<uint8_t>(read_image(corpus("sixteen.tiff"))) ==
        std::vector<uint8_t>{0, 1, 100, 255});
  const auto magenta = to_vector<uint8_t>(read_image(corpus("cmyk.tiff")));
  CHECK(magenta == std::vector<uint8_t>{255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255});
  // One gray pixel: its strip is a single byte. Each tag has its number and its value.
  std::string one("II*\0\x08\0\0\0\x09\0", 10);
  for (const auto& [number, value] : std::initializer_list<std::pair<char, char>>{{0x00, 1},
                                                                                  {0x01, 1},
                                                                                  {0x02, 8},
                                                                                  {0x03, 1},
                                                                                  {0x06, 1},
                                                                                  {0x11, 122},
                                                                                  {0x15, 1},
                                                                                  {0x16, 1},
                                                                                  {0x17, 1}})
    one += std::string{number, 1, 3, 0, 1, 0, 0, 0, value, 0, 0, 0};
  write(folder / "one.tiff", one + std::string(4, '\0') + '\xc8');
  CHECK(to_vector<uint8_t>(read_image(folder / "one.tiff"))[0] == 0xc8);
}

TEST_CASE("pictures: half of a file, and one that claims too much, are refused", "[quick]") {
  const TempFolder folder;
  for (const char* file : {"colours.webp", "animated.webp", "colours.gif", "interlaced.gif",
                           "colours.bmp", "palette.bmp", "masks.bmp", "os2.bmp", "colours_lzw.tiff",
                           "colours_deflate.tiff", "held.tiff", "held.png"}) {
    const Bytes whole = read_bytes(corpus(file));
    for (size_t size = 0; size < whole.size(); ++size) {
      CAPTURE(file, size);
      write_bytes(folder / "cut", Bytes(whole.begin(), whole.begin() + size));
      try {  // what ends later than its pixels may still be read
        (void)read_image(folder / "cut");
      } catch (const DataError& error) {
        CHECK(std::string(error.what()).find("cut") != std::string::npos);
      }
      if (size < whole.size() / 2) CHECK_THROWS_AS(read_image(folder / "cut"), DataError);
    }
  }
  const auto refused = [&](const char* format, const std::string& bytes, const char* words) {
    if (!reads_pictures(format)) return;
    CAPTURE(format);
    write(folder / "large", bytes);
    require_error<DataError>(words, [&] { (void)read_image(folder / "large"); });
  };
  const std::string side("\0\x40", 2);  // 16384, little-endian
  const std::string longer("\xff\xff", 2);
  const std::string frame = std::string(",\0\0\0\0", 5) + side + side + std::string("\0\2", 2);
  refused("GIF", "GIF89a" + side + side + std::string("\0\0\0", 3), "pixels for a byte");
  refused("GIF", "GIF89a" + longer + longer + std::string("\0\0\0", 3), "pixels a side");
  refused("GIF", std::string("GIF89a\1\0\1\0\0\0\0", 13) + frame, "pixels for a byte");
  const std::string of_bmp("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", 18);
  const std::string bits("\1\0\1\0", 4);
  const std::string none(2, '\0');
  refused("BMP", of_bmp + side + none + side + none + bits + std::string(24, '\0'),
          "pixels for a byte");
  refused("BMP", of_bmp + std::string("\1\0\0\0\0\0\0\x80", 8) + bits + std::string(24, '\0'),
          "pixels a side");  // a height of -2^31
  const std::string eight("\1\0\x08\0", 4);
  const std::string one("\1\0\0\0", 4);
  refused("BMP", of_bmp + one + one + eight + std::string(24, '\0') + "\7   ",
          "a pixel of colour 7, which its palette lacks");  // it has no colour at all
  const auto tag = [](char number, const std::string& value) {
    return std::string{number, 1, 4, 0, 1, 0, 0, 0} + value;
  };
  const std::string four(std::string(1, '\x20') + std::string(3, '\0'));
  const std::string many = side + none;
  refused("TIFF",
          std::string("II*\0\x08\0\0\0\4\0", 10) + tag(0, many) + tag(1, many) + tag(0x11, four) +
              tag(0x17, four) + none + none,
          "pixels for a byte");
  // A tile of 2^30 x 2^30 pixels, for a picture of 32 x 32.
  const std::string vast("\0\0\0\x40", 4);
  refused("TIFF",
          std::string("II*\0\x08\0\0\0\4\0", 10) + tag(0, four) + tag(1, four) + tag(0x42, vast) +
              tag(0x43, vast) + none + none,
          "");
}

TEST_CASE("pictures of other formats are named", "[quick]") {
  const TempFolder folder;
  const std::pair<const char*, std::string> formats[] = {
      {"HEIC", std::string("\0\0\0\x18", 4) + "ftypheic" + std::string(20, '\0')},
      {"AVIF", std::string("\0\0\0\x18", 4) + "ftypavif" + std::string(20, '\0')},
      {"JPEG XL", std::string("\0\0\0\x0c", 4) + "JXL ........"},
      {"SVG", "<svg xmlns='http://www.w3.org/2000/svg'/>"}};
  for (const auto& [name, bytes] : formats) {
    write(folder / "a.jpg", bytes);
    require_error<DataError>(std::string("a.jpg is a ") + name + " picture, which is not read",
                             [&] { (void)read_image(folder / "a.jpg"); });
  }
}

}  // namespace ringgrad::test::image_folder_test
