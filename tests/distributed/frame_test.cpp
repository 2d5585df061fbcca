// Message headers: those that are refused, and the rank that is named.
#include "ringgrad/distributed/transport/frame.h"

#include <random>

#include "ringgrad/distributed/checksums/crc32c.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::frame_test {

namespace {

Frame sample() {
  Frame frame;
  frame.operation = Operation::AllReduce;
  frame.reduce_op = ReduceOp::Average;
  frame.dtype = DType::Float32;
  frame.job = 0x1234;
  frame.sequence = 17;
  frame.step = 12;
  frame.count = 1000;
  frame.bucket = 1;
  frame.layout = 99;
  frame.part = 3;
  frame.payload_bytes = 4000;
  return frame;
}

std::string mismatch(const Frame& mine, const Frame& theirs) {
  try {
    check_in_step(mine, 0, theirs, 1);
    return "";
  } catch (const OutOfStepError& e) {
    return e.what();
  }
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a frame survives the way there and back", "[frame][quick]") {
  const Frame decoded = decode(encode(sample()));
  REQUIRE(encode(decoded) == encode(sample()));
  REQUIRE(decoded.step == 12);
  REQUIRE(decoded.payload_bytes == 4000);
}

TEST_CASE("every flipped bit of a header is noticed", "[frame][quick]") {
  for (size_t bit = 0; bit < kFrameBytes * 8; ++bit) {
    FrameBytes bytes = encode(sample());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CAPTURE(bit);
    REQUIRE_THROWS_AS(decode(bytes), DistributedError);
  }
}

TEST_CASE("garbage is no header", "[frame][quick]") {
  std::mt19937 random(GENERATE(1u, 2u, 3u));
  for (int i = 0; i < 10'000; ++i) {
    FrameBytes bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    bool refused = false;
    try {
      (void)decode(bytes);
    } catch (const DistributedError&) {
      refused = true;
    }
    if (!refused) FAIL("accepted");
  }
}

TEST_CASE("values beyond the caps are refused although the hash is right", "[frame][quick]") {
  const auto refused = [](auto change) {
    Frame frame = sample();
    change(frame);
    REQUIRE_THROWS_AS(decode(encode(frame)), DistributedError);
  };
  refused([](Frame& f) { f.payload_bytes = kMaxPayload + 1; });
  refused([](Frame& f) { f.version = kFrameVersion + 1; });
  refused([](Frame& f) { f.operation = static_cast<Operation>(200); });
  refused([](Frame& f) { f.dtype = static_cast<DType>(8); });
  refused([](Frame& f) { f.reduce_op = static_cast<ReduceOp>(8); });
  refused([](Frame& f) { f.reserved = 1; });
  refused([](Frame& f) { f.dims = kFrameDims + 1; });
}

TEST_CASE("ranks that disagree are both named", "[frame][quick]") {
  Frame theirs = sample();
  REQUIRE(mismatch(sample(), theirs).empty());
  theirs.part = 9;  // belongs to the message, not to the collective
  REQUIRE(mismatch(sample(), theirs).empty());

  theirs = sample();
  theirs.operation = Operation::Barrier;
  theirs.sequence = 18;
  REQUIRE(mismatch(sample(), theirs) ==
          "ranks are out of step: rank 0 is in all_reduce (average) of 1000 float32, step 12, "
          "bucket 1 (collective 17), rank 1 in barrier, step 12, bucket 1 (collective 18)");
  theirs = sample();
  theirs.step = 13;
  REQUIRE(contains(mismatch(sample(), theirs), "step 12"));
  REQUIRE(contains(mismatch(sample(), theirs), "step 13"));
  theirs = sample();
  theirs.layout = 98;
  REQUIRE(contains(mismatch(sample(), theirs), "these are of other parameters"));
  Frame mine = sample();
  set_shape(mine, std::array<int64_t, 2>{2, 3});
  set_shape(theirs = sample(), std::array<int64_t, 2>{3, 2});
  REQUIRE(contains(mismatch(mine, theirs), "rank 0 is in all_reduce (average) of [2, 3] float32"));
  REQUIRE(contains(mismatch(mine, theirs), "rank 1 in all_reduce (average) of [3, 2] float32"));
  set_shape(mine, {});
  set_shape(theirs, std::array<int64_t, 1>{1});
  REQUIRE(contains(mismatch(mine, theirs), "the tensor has 0 dimensions here and 1 there"));
  theirs = sample();
  theirs.job = 1;
  REQUIRE(contains(mismatch(sample(), theirs), "rank 1 belongs to another job"));
}

TEST_CASE("fingerprints differ where frames do", "[frame][quick]") {
  const auto differs = [](auto change) {
    Frame frame = sample();
    change(frame);
    REQUIRE(fingerprint(frame) != fingerprint(sample()));
  };
  differs([](Frame& f) { f.operation = Operation::Broadcast; });
  differs([](Frame& f) { f.dtype = DType::Float64; });
  differs([](Frame& f) { f.job = 1; });
  differs([](Frame& f) { f.sequence = 18; });
  differs([](Frame& f) { f.step = 13; });
  differs([](Frame& f) { f.count = 1001; });
  differs([](Frame& f) { set_shape(f, std::array<int64_t, 2>{10, 100}); });
  differs([](Frame& f) { f.layout = 98; });
  differs([](Frame& f) { f.bucket = 2; });
  differs([](Frame& f) { f.root = 0; });
  differs([](Frame& f) { f.tag = 1; });
  differs([](Frame& f) { f.reduce_op = ReduceOp::Sum; });
  Frame same = sample();
  same.part = 7;
  same.payload_bytes = 1;
  REQUIRE(fingerprint(same) == fingerprint(sample()));
}

TEST_CASE("CRC-32C by table and by instruction", "[frame][quick]") {
  REQUIRE(payload_checksum == crc32c);
  REQUIRE(crc32c("123456789", 9) == 0xe3069283);  // RFC 3720
  REQUIRE(crc32c(nullptr, 0) == 0);
  std::vector<unsigned char> bytes(20'000);
  std::mt19937 random(1);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (int i = 0; i < 200; ++i) {
    const size_t at = random() % 100;
    const size_t size = random() % 19'000;
    REQUIRE(crc32c(&bytes[at], size) == crc32c_portable(&bytes[at], size));
  }
}

}  // namespace ringgrad::test::frame_test
