// Safetensors files, good and hostile; that a save is whole or does not happen; and checkpoints.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/load_weights.h"
#include "ringgrad/nn/random_state.h"
#include "ringgrad/nn/safetensors_header.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::checkpoint_test {

namespace {

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

// A file with this JSON in front of `data` zero bytes; `length` is what its first eight bytes
// claim.
Bytes file_of(const std::string& json, size_t data, uint64_t length) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(length >> (8 * i)));
  bytes.insert(bytes.end(), json.begin(), json.end());
  bytes.resize(bytes.size() + data);
  return bytes;
}
Bytes file_of(const std::string& json, size_t data) { return file_of(json, data, json.size()); }

std::string load_error(const TempFolder& folder, const Bytes& bytes) {
  const auto path = folder / "x.safetensors";
  write_bytes(path, bytes);
  return error_of<DataError>([&] { nn::load_safetensors(path); });
}

nn::NamedTensors every_dtype() {
  return {{"weight", tensor<float>({1, -2, 3, 4, 5, 6}, {2, 3})},
          {"double", tensor<double>({1e300, -0.0}, {2})},
          {"bf16", tensor<bfloat16>({bfloat16(1.5f), bfloat16(-3.f)}, {2})},
          {"half", tensor<float16>({float16(0.25f)}, {1})},
          {"num_batches_tracked", tensor<int64_t>({INT64_MIN}, Shape())},
          {"i32", tensor<int32_t>({-7, 7}, {2, 1})},
          {"bytes", tensor<uint8_t>({255, 0, 1}, {3})},
          {"mask", tensor<bool>({true, false}, {2})},
          {"empty", tensor<float>({}, {0, 5})}};
}

}  // namespace

TEST_CASE("safetensors: every dtype comes back bit for bit, with its metadata", "[quick]") {
  const TempFolder folder;
  const nn::NamedTensors saved = every_dtype();
  nn::save_safetensors(folder / "x", saved, {{"epoch", "3"}, {"odd \"key\"\n", "ü"}});
  const nn::SafetensorsFile file = nn::load_safetensors(folder / "x");
  REQUIRE(file.tensors.size() == saved.size());
  for (const auto& [name, expected] : saved) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                    [&, &n = name](const auto& entry) { return entry.first == n; });
    REQUIRE(found != file.tensors.end());
    const Tensor& x = found->second;
    REQUIRE(x.shape() == expected.shape());
    REQUIRE(x.dtype() == expected.dtype());
    const size_t bytes = x.nbytes();
    REQUIRE((bytes == 0 || std::memcmp(x.raw_data(), expected.raw_data(), bytes) == 0));
  }
  REQUIRE(file.metadata ==
          std::map<std::string, std::string>{{"epoch", "3"}, {"odd \"key\"\n", "ü"}});
}

TEST_CASE("safetensors: strided views are saved row-major", "[quick]") {
  const TempFolder folder;
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  nn::save_safetensors(folder / "x", {{"t", x.as_strided({3, 2}, {1, 3}, 0)}});
  REQUIRE(to_vector<float>(nn::load_safetensors(folder / "x").tensors[0].second) ==
          std::vector<float>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("safetensors: many tensors, of which some are empty", "[quick]") {
  const TempFolder folder;
  for (int count = 2; count < 70; ++count)
    for (int empty = 1; empty < std::min(count, 6); ++empty) {
      nn::NamedTensors saved;
      for (int i = 0; i < count; ++i)
        saved.emplace_back("t" + std::to_string(100 + i), zeros({i < empty ? 0 : 1}));
      CHECK_NOTHROW(nn::save_safetensors(folder / "x", saved));
    }
}

TEST_CASE("safetensors: loaded tensors are no views of each other", "[quick]") {
  const TempFolder folder;
  nn::save_safetensors(folder / "x", {{"a", ones({2})}, {"b", ones({2})}});
  const nn::NamedTensors loaded = nn::load_safetensors(folder / "x").tensors;
  const Tensor a = loaded[0].second.set_requires_grad();
  const Tensor loss = sum(square(a));
  fill_(loaded[1].second, 0);
  CHECK_NOTHROW(loss.backward());
  CHECK_NOTHROW(loaded[1].second.mul_(a));
}

TEST_CASE("safetensors: the bytes are the format's", "[quick]") {
  const TempFolder folder;
  nn::save_safetensors(folder / "x",
                       {{"b", tensor<uint8_t>({7}, {1})}, {"a", tensor<float>({1, 2}, {2})}});
  const Bytes bytes = read_bytes(folder / "x");
  const std::string text(bytes.begin(), bytes.end());
  const size_t length = bytes[0] + 256 * bytes[1];
  REQUIRE(length % 8 == 0);
  REQUIRE(
      text.find(
          R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1],)"
          R"("data_offsets":[8,9]}})") != std::string::npos);
  REQUIRE(bytes.size() == 8 + length + 9);
  const uint8_t data[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 7};
  REQUIRE(std::memcmp(bytes.data() + 8 + length, data, 9) == 0);
}

TEST_CASE("safetensors: a file from elsewhere, without hashes, unordered and unaligned",
          "[quick]") {
  const TempFolder folder;
  Bytes bytes = file_of(
      R"({"f":{"shape":[1],"data_offsets":[1,5],"dtype":"F32"},"__metadata__":{"format":"pt"},)"
      R"("u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
      5);
  const float value = 2.5f;
  std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
  write_bytes(folder / "x", bytes);
  const nn::SafetensorsFile file = nn::load_safetensors(folder / "x");
  REQUIRE(file.tensors[0].first == "u");
  REQUIRE(file.tensors[1].second.item<float>() == 2.5f);
  REQUIRE(file.metadata.at("format") == "pt");
}

TEST_CASE("safetensors: tensors of dtypes that ringgrad lacks are skipped by name", "[quick]") {
  const TempFolder folder;
  write_bytes(folder / "x", file_of(R"({"q":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)"
                                    R"("u":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},)"
                                    R"("e":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[4,6]}})",
                                    6));
  const nn::SafetensorsFile file = nn::load_safetensors(folder / "x");
  REQUIRE(file.tensors.size() == 1);
  REQUIRE(file.tensors[0].first == "u");
  REQUIRE(file.skipped == std::vector<std::string>{"q", "e"});
}

TEST_CASE("safetensors: hostile headers are refused with a reason", "[quick]") {
  struct Case {
    const char* json;
    size_t data;
    const char* reason;
  };
  const Case cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "within the 7 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
       "end at byte 8 of the data, of 9"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "expected a range"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "negative"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999]}})", 8,
       "no valid size"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8, "expected 2"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "needs 12 bytes, found 8"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "too many"},
      {R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,2],"data_offsets":[0,0]}})", 0,
       "too many"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
       "more than 8"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "no valid size"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})",
       9, "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "twice"},
      {R"({"__metadata__":{"k":1}})", 0, "a string was expected"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 0, "expected the fields"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":[1]}})", 4, "unknown field"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
       "an unsigned number was expected"},
      {R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}})", 4, "a string was expected"},
      {R"({"a":[1]})", 0, "an object was expected"},
      {R"({"a":null})", 0, "an object was expected"},
      {R"({"a":"F32"})", 0, "a JSON string where an object was expected"},
      {R"({"a":{"dtype":"F32","shape":[{}],"data_offsets":[0,4]}})", 4,
       "a JSON object where an unsigned number was expected"},
      {R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4, "a JSON string where"},
      {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4,
       "a JSON array where a string was expected"},
      {R"({"__metadata__":{"k":["1"]}})", 0, "a JSON array where a string was expected"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "needs"},
      {R"({"__metadata__":{"sha256":"00"}})", 0, "expected 00. Nothing"},
      {R"({"__metadata__":{"sha256":"\u0030000000000000000000000000000000000000000000000000000000000000000"}})",
       0, "the header, bytes 8 to 107, has SHA-256"},
      {R"({"a":true})", 0, "an object was expected"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4, "no valid JSON at byte"},
      {R"({} x)", 0, "no valid JSON at byte"},
      {R"( {})", 0, "no '{'"},
      {R"([])", 0, "no '{'"},
      {"{\"\xff\":{}}", 0, "no valid JSON"},
      {R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"__metadata__":{"sha256":"00"}})",
       1, "SHA-256"},
      {R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"__metadata__":{"sha256:a":"00"}})",
       1, "SHA-256"},
  };
  const TempFolder folder;
  for (const Case& c : cases) {
    const std::string error = load_error(folder, file_of(c.json, c.data));
    INFO(c.json << " → " << error);
    REQUIRE(contains(error, c.reason));
    REQUIRE(contains(error, "x.safetensors"));
  }
  REQUIRE(contains(load_error(folder, {1, 2, 3}), "has 3 bytes"));
  REQUIRE(contains(load_error(folder, file_of("{}", 0, 3)), "expected at most 2"));
  REQUIRE(contains(load_error(folder, file_of("{}", 0, 0)), "no '{'"));
  REQUIRE(contains(load_error(folder, file_of("{}", 0, uint64_t{4} << 30)), "4294967296"));
  REQUIRE(contains(load_error(folder, file_of("{}", 0, UINT64_MAX)), "expected at most 2"));
  REQUIRE(contains(load_error(folder, file_of(std::string(8, '['), 0)), "no '{'"));
  REQUIRE(contains(load_error(folder, file_of("{\"a\":" + std::string(1'000'000, '['), 0)),
                   "an object was expected"));
  REQUIRE(contains(load_error(folder, file_of("{\"" + std::string(5000, 'n') + "\":{}}", 0)),
                   "a name of 5000 bytes"));

  Bytes odd_bool = file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1);
  odd_bool.back() = 2;
  REQUIRE(contains(load_error(folder, odd_bool), "neither 0 nor 1"));

  REQUIRE_THROWS_AS(nn::load_safetensors(folder / "missing"), IoError);
  REQUIRE_THROWS_AS(nn::load_safetensors(folder.path()), IoError);
}

TEST_CASE("safetensors: no more than 65,536 tensors and a header of 16 MiB", "[quick]") {
  const TempFolder folder;
  std::string json = "{";
  for (int i = 0; i <= 65'536; ++i)
    json += (i ? ",\"" : "\"") + std::to_string(i) +
            R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  REQUIRE(contains(load_error(folder, file_of(json + "}", 0)), "more than 65536 tensors"));
  json = R"({"__metadata__":{"0":"")";
  for (int i = 1; i <= 2 * 65'536 + 1; ++i) json += ",\"" + std::to_string(i) + R"(":"")";
  REQUIRE(contains(load_error(folder, file_of(json + "}}", 0)), "too much metadata"));
  REQUIRE(contains(load_error(folder, file_of("{}" + std::string(16 << 20, ' '), 0)),
                   "expected at most 16777216"));
}

TEST_CASE("safetensors: every truncation and every flipped bit is found", "[quick]") {
  const TempFolder folder;
  nn::save_safetensors(
      folder / "x",
      {{"a.weight", tensor<float>({1, 2}, {1, 2})}, {"n", tensor<int64_t>({3}, Shape())}},
      {{"epoch", "3"}});
  const Bytes good = read_bytes(folder / "x");
  for (size_t length = 0; length < good.size(); ++length)
    REQUIRE(
        !load_error(folder, Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)))
             .empty());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    INFO("bit " << bit);
    REQUIRE(!load_error(folder, bad).empty());
  }
  REQUIRE(load_error(folder, good).empty());
}

TEST_CASE("safetensors: a damaged tensor is named with its bytes and both hashes", "[quick]") {
  const TempFolder folder;
  nn::save_safetensors(folder / "x", {{"fc.weight", tensor<float>({1, 2}, {2})}});
  Bytes bytes = read_bytes(folder / "x");
  bytes.back() ^= 1;
  const std::string error = load_error(folder, bytes);
  REQUIRE(
      contains(error, str("tensor 'fc.weight', bytes ", bytes.size() - 8, " to ", bytes.size())));
  REQUIRE(contains(error,
                   "expected " + sha256_hex(bytes_of(std::string("\0\0\x80\x3f\0\0\0\x40", 8)))));
  REQUIRE(contains(error, "Nothing was loaded"));
}

TEST_CASE("safetensors: what cannot be saved is refused before a file is touched", "[quick]") {
  const TempFolder folder;
  const Tensor x = tensor<float>({1}, {1});
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"a", x}, {"a", x}}), Error);
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"__metadata__", x}}), Error);
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"a", Tensor()}}), Error);
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"a\xff", x}}), Error);
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"a", x}}, {{"sha256:a", "1"}}), Error);
  const auto long_name = [](size_t bytes) { return std::string(bytes, 'n'); };
  REQUIRE(contains(error_of<Error>([&] {
                     nn::save_safetensors(folder / "x", {{long_name(4090), x}});
                   }),
                   "has 4090 bytes, expected at most 4089"));
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "x", {{"a", x}}, {{long_name(4097), "1"}}),
                    Error);
  REQUIRE(folder.names().empty());
  REQUIRE_THROWS_AS(nn::save_safetensors(folder / "no" / "x", {{"a", x}}), IoError);
  nn::save_safetensors(folder / "x", {{long_name(4089), x}}, {{long_name(4096), "1"}});
  REQUIRE(nn::load_safetensors(folder / "x").tensors[0].first == long_name(4089));
}

TEST_CASE("a save that fails at any byte leaves the old file and nothing else", "[quick]") {
  const TempFolder folder;
  const auto path = folder / "x.safetensors";
  nn::save_safetensors(path, {{"old", tensor<float>({1}, {1})}});
  const Bytes old = read_bytes(path);
  nn::save_safetensors(folder / "whole", {{"new", zeros({1000})}, {"more", zeros({500})}});
  const rlim_t size = std::filesystem::file_size(folder / "whole");
  std::filesystem::remove(folder / "whole");

  const auto previous_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit previous;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &previous) == 0);
  for (rlim_t limit :
       std::initializer_list<rlim_t>{0, 1, 8, 100, 500, 1000, size - 4001, size - 2000, size - 1}) {
    const rlimit cut{.rlim_cur = limit, .rlim_max = previous.rlim_max};
    setrlimit(RLIMIT_FSIZE, &cut);
    const std::string error = error_of<IoError>([&] {
      nn::save_safetensors(path, {{"new", zeros({1000})}, {"more", zeros({500})}});
    });
    setrlimit(RLIMIT_FSIZE, &previous);
    INFO("limit " << limit << ": " << error);
    REQUIRE(contains(error, "x.safetensors"));
    REQUIRE(read_bytes(path) == old);
    REQUIRE(folder.names() == std::vector<std::string>{"x.safetensors"});
  }
  std::signal(SIGXFSZ, previous_handler);
}

TEST_CASE("a checkpoint keeps its parts apart", "[quick]") {
  const TempFolder folder;
  const Tensor w = tensor<float>({1, 2}, {2});
  const Tensor m = tensor<float>({3, 4}, {2});
  nn::save_checkpoint(folder / "c", {.model = {{"w", w}},
                                     .optimizer = {{"momentum.w", m}},
                                     .random = nn::random_state(),
                                     .progress = {{"epoch", "2"}}});
  const nn::Checkpoint loaded = nn::load_checkpoint(folder / "c");
  REQUIRE(loaded.model.size() == 1);
  REQUIRE(to_vector<float>(loaded.model[0].second) == to_vector<float>(w));
  REQUIRE(loaded.optimizer[0].first == "momentum.w");
  REQUIRE(to_vector<float>(loaded.optimizer[0].second) == to_vector<float>(m));
  REQUIRE(loaded.random[0].first == "cpu:0");
  REQUIRE(loaded.progress.at("epoch") == "2");

  nn::save_safetensors(folder / "weights", {{"w", w}});
  REQUIRE(contains(error_of<DataError>([&] { nn::load_checkpoint(folder / "weights"); }),
                   "weights only"));
}

TEST_CASE("the random state goes back to where it was", "[quick]") {
  default_generator().set_state(7, 40);
  const nn::NamedTensors saved = nn::random_state();
  default_generator().set_state(8, 99);
  nn::set_random_state(saved);
  REQUIRE(to_vector<int64_t>(default_generator().state()) == std::vector<int64_t>{7, 40});
  nn::set_random_state({{"cuda:63", saved[0].second}});
  REQUIRE_THROWS_AS(nn::set_random_state({{"cpu:0", zeros({2})}}), DataError);
  REQUIRE(contains(error_of<DataError>([&] {
                     nn::check_random_state({{"gpu:0", saved[0].second}});
                   }),
                   "set_random_state: device: cannot read 'gpu:0'"));
  manual_seed(0);
}

TEST_CASE("weights load from a file of weights and from a checkpoint", "[quick]") {
  struct Net : nn::Module {
    nn::Parameter w = register_parameter("w", tensor<float>({0, 0}, {2}));
  } net;
  const TempFolder folder;
  const Tensor w = tensor<float>({1, 2}, {2});
  nn::save_safetensors(folder / "weights", {{"module.w", w}});
  REQUIRE(net.load_state_dict(nn::load_weights(folder / "weights").tensors).stripped_module_prefix);
  REQUIRE(to_vector<float>(net.w) == std::vector<float>{1, 2});
  nn::save_checkpoint(folder / "c", {.model = {{"w", tensor<float>({5, 6}, {2})}},
                                     .optimizer = {{"step", w}},
                                     .random = {},
                                     .progress = {}});
  REQUIRE(!net.load_state_dict(nn::load_weights(folder / "c").tensors).stripped_module_prefix);
  REQUIRE(to_vector<float>(net.w) == std::vector<float>{5, 6});
  // Weights whose names begin like a checkpoint's.
  for (const nn::NamedTensors& named :
       {nn::NamedTensors{{"optim.w", w}, {"head.w", w}}, nn::NamedTensors{{"model.w", w}},
        nn::NamedTensors{{"optim.w", w}, {"random.w", w}}}) {
    nn::save_safetensors(folder / "named", named);
    REQUIRE(nn::load_weights(folder / "named").tensors.size() == named.size());
  }
  nn::save_checkpoint(
      folder / "c",
      {.model = {{"w", w}}, .optimizer = {}, .random = nn::random_state(), .progress = {}});
  REQUIRE(nn::load_weights(folder / "c").tensors[0].first == "w");
  nn::save_safetensors(folder / "other", {{"v", w}});
  REQUIRE(contains(
      error_of<DataError>([&] { net.load_state_dict(nn::load_weights(folder / "other").tensors); }),
      "missing in the state: w"));
}

}  // namespace ringgrad::test::checkpoint_test
