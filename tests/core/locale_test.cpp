// The library reads and writes the same text in every locale that a program may have chosen. The
// C++ locales are made here, with the separators of four languages, so that they need not be
// installed. The C locales are tested if they are installed.
#include <barrier>
#include <clocale>
#include <functional>
#include <locale>
#include <sstream>
#include <thread>

#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/data/formats/picture_files.h"
#include "ringgrad/distributed/os/shared_memory.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/distributed/transport/transport.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/random_state.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::locale_test {

namespace {

struct Language {
  const char* name;
  char point;
  char separator;
  std::string grouping;
};
const Language kLanguages[] = {
    {"de_DE.UTF-8", ',', '.', "\3"},
    {"en_US.UTF-8", '.', ',', "\3"},
    {"tr_TR.UTF-8", ',', '.', "\3"},
    {"hi_IN.UTF-8", '.', ',', "\3\2"},
};

class Punctuation : public std::numpunct<char> {
 public:
  explicit Punctuation(const Language& language) : language_(language) {}

 protected:
  char do_decimal_point() const override { return language_.point; }
  char do_thousands_sep() const override { return language_.separator; }
  std::string do_grouping() const override { return language_.grouping; }

 private:
  Language language_;
};

std::locale locale_of(const Language& language) {
  return {std::locale::classic(), new Punctuation(language)};
}

// While an object lives, the process uses this language in C++ and, if its locale is installed, in
// C.
class Speaks {
 public:
  explicit Speaks(const Language& language) : before_(std::locale::global(locale_of(language))) {
    if (std::setlocale(LC_ALL, language.name) == nullptr)
      std::printf("without the C locale %s, which is not installed\n", language.name);
  }
  ~Speaks() {
    std::locale::global(before_);
    std::setlocale(LC_ALL, "C");
  }
  Speaks(const Speaks&) = delete;

 private:
  std::locale before_;
};

// Checks that `make` returns the same in the classic locale and in each of the others.
void same_everywhere(const std::function<std::string()>& make) {
  const std::string classic = make();
  for (const Language& language : kLanguages) {
    INFO(language.name);
    const Speaks speaks(language);
    CHECK(make() == classic);
  }
}

std::string bytes_in(const std::filesystem::path& file) {
  const Bytes bytes = read_bytes(file);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("locale: a checkpoint has the same bytes, and is loaded again", "[quick]") {
  const TempFolder folder;
  manual_seed(1);
  nn::Linear net{784, 10};
  const std::string file = folder / "net.safetensors";
  same_everywhere([&] {
    nn::save_checkpoint(file, {net.state_dict(), {}, nn::random_state(), {{"epoch", "1234567"}}});
    const nn::Checkpoint loaded = nn::load_checkpoint(file);
    REQUIRE(loaded.model.size() == 2);
    CHECK(loaded.model[1].second.shape() == net.weight.shape());
    CHECK(loaded.progress.at("epoch") == "1234567");
    return bytes_in(file);
  });
}

TEST_CASE("locale: numbers in texts and errors have no separators, whatever the stream's locale is",
          "[quick]") {
  CHECK(str("size ", 1234567, " > ", 0.5) == "size 1234567 > 0.5");
  nn::Linear net{12345, 2};
  const Tensor x = tensor<float>({1234.5f, 0.25f}).set_requires_grad(true);
  const Tensor y = sum(x * 1234.5);
  const std::vector<int64_t> many(12345, 1);
  same_everywhere([&] {
    std::ostringstream out;
    out.imbue(std::locale());  // that of the language
    out << Shape{12345, 1} << Device("cuda:1") << DType::Float32 << tensor<int64_t>({1234567})
        << x.detach() << net;
    print_graph(out, y);
    print_graph_dot(out, y);
    std::string refused;
    try {
      (void)matmul(ones({12345, 2}), ones({12345, 2}));
    } catch (const ShapeError& error) {
      refused = error.what();
    }
    CHECK(refused.find("12345") != std::string::npos);
    const std::string sequences = out.str();  // numbers of operations, which count on
    std::string without_sequences;
    for (size_t i = 0; i < sequences.size(); ++i) {
      without_sequences += sequences[i];
      if (sequences[i] == '#')
        while (i + 1 < sequences.size() && is_digit(sequences[i + 1])) ++i;
    }
    return without_sequences + refused + str(1e-7, ' ', 3.25f, ' ', 1e9) +
           formatted(1234.5, std::chars_format::fixed, 2);
  });
}

TEST_CASE("locale: files of images and lists of them are read the same", "[quick]") {
  const TempFolder folder;
  write_bytes(folder / "wide.pgm", [] {
    const std::string text = "P5\n# a comment\n1500 1\n255\n" + std::string(1500, '\x11');
    return Bytes(text.begin(), text.end());
  }());
  std::filesystem::create_directories(folder / "a/TIFIL");
  std::filesystem::copy(folder / "wide.pgm", folder / "a/TIFIL/I.PGM");
  write_bytes(folder / "a/TIFIL/I.TIF", Bytes{1});
  write_bytes(folder / "list.csv", [] {
    const std::string text = "I.JPG,1.234\nj.pgm,1,5\n";
    return Bytes(text.begin(), text.end());
  }());
  same_everywhere([&] {
    const Tensor image = read_image((folder / "wide.pgm").string());
    const LabelledPictures listed = pictures_in_csv(folder / "list.csv");
    const LabelledPictures found = pictures_in_folders(folder / "a");
    return str(image.shape(), listed.classes[0], listed.classes[1], listed.pictures.size(),
               found.pictures.size(), in_words(found.left_out));
  });
}

TEST_CASE("locale: ranks find each other by the addresses that they print", "[quick]") {
  for (const Language& language : kLanguages)
    for (const char* transport : {"auto", "tcp"}) {
      INFO(language.name);
      const Speaks speaks(language);
      std::vector<std::string> told(2);
      std::barrier all(2);
      std::vector<std::string> errors(2);
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < 2; ++rank)
        ranks.emplace_back([&, rank] {
          try {
            ConnectOptions options;
            options.transport = transport;
            const Connected connected =
                connect_ranks(rank, 2, options, [&](const std::string& own) {
                  told[rank] = own;
                  all.arrive_and_wait();
                  return told;
                });
            if (!connected.transport) errors[rank] = "no transport";
          } catch (const std::exception& error) {
            errors[rank] = error.what();
          }
        });
      for (std::thread& rank : ranks) rank.join();
      CHECK(errors == std::vector<std::string>(2));
    }
}

TEST_CASE("locale: variables, devices and what ranks tell each other are read the same",
          "[quick]") {
  same_everywhere([&] {
    setenv("RINGGRAD_TEST_NUMBER", "12345", 1);
    const int number = number_from_environment("RINGGRAD_TEST_NUMBER", 0, 100'000, 0);
    unsetenv("RINGGRAD_TEST_NUMBER");
    return str(number, Device("cuda:1"), machine_id(), shell_word("na\xc3\xafve"),
               shell_word("\xe4"));
  });
  for (const Language& language : kLanguages) {
    INFO(language.name);
    const Speaks speaks(language);
    for (const char* refused : {"1.000", "1,000", " 1", "1 ", "+1", "", "0x1"})
      CHECK(!parse_number<int>(refused));
    CHECK(parse_number<double>("0.5") == 0.5);
    CHECK(!parse_number<double>("0,5"));
    CHECK(!parse_number<uint64_t>("18446744073709551616"));
    CHECK(parse_number<int>("ff", 16) == 255);
    CHECK(lower_case("TIFF\xc4") == "tiff\xc4");
  }
}

}  // namespace ringgrad::test::locale_test
