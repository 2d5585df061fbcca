// The hashed weights of tests/golden/hashed_weights.h equal those of tests/golden/hashed.py, bit
// for bit. The values below were printed by the latter.
#include "ringgrad/tests/golden/hashed_weights.h"

#include "ringgrad/tests/catch.h"

namespace ringgrad::test::hashed_weights_test {

TEST_CASE("hashes equal Python's", "[quick]") {
  REQUIRE(fnv1a64("") == 0xcbf29ce484222325);
  REQUIRE(fnv1a64("a") == 0xaf63dc4c8601ec8c);
  REQUIRE(fnv1a64("conv1.weight") == 0x69a29a2cee47d254);
  REQUIRE(hashed_bits("conv1.weight", 0) == 0x8b8a08a85128a1b0);
  REQUIRE(hashed_bits("conv1.weight", 1) == 0x13270f9292cbed3b);
  REQUIRE(hashed_bits("conv1.weight", 2) == 0xf5c3cc38f0bea3e7);
  REQUIRE(hashed_uniform("input", 0) == -0x1.9bd582255909ep-1);
  REQUIRE(hashed_uniform("input", 7) == -0x1.ea6888c8e487cp-2);
  const int64_t labels[] = {5, 6, 9, 6, 2, 4, 6, 1, 7, 7, 8, 3};
  for (int64_t i = 0; i < 12; ++i) REQUIRE(hashed_label(i, 10) == labels[i]);
  REQUIRE(hashed_label(3, 1000) == 636);
}

TEST_CASE("hashed state equals Python's", "[quick]") {
  struct {
    const char* name;
    Shape shape;
    bool steady;
    double element0;
    double element3;
  } const rows[] = {
      {"conv1.weight", {64, 3, 3, 3}, false, 0x1.5c22df95aa4b8p-5, 0x1.4bce782a41ef8p-2},
      {"fc.weight", {10, 64}, true, -0x1.3419b8822d430p-7, -0x1.623936d77546ap-3},
      {"bn1.weight", {16}, false, 0x1.ee1b2a69ef57ep-1, 0x1.19fe5410f0700p+0},
      {"bn1.weight", {16}, true, 0x1.f70d9534f7abfp-3, 0x1.0cff2a0878380p-2},
      {"bn1.bias", {16}, false, -0x1.0c896fea697c7p-4, -0x1.a0bbaae4a7934p-5},
      {"bn1.bias", {16}, true, -0x1.eb054341afc24p-1, -0x1.efb8ab5311744p-1},
      {"layer1.0.bn2.bias", {16}, false, -0x1.777692a9a6674p-4, 0x1.0bd76c953cfcdp-4},
      {"layer1.0.bn2.bias", {16}, true, 0x1.cf5c3a1ecbd6fp-4, 0x1.ff9bad43834b4p-4},
      {"layer1.0.bn3.weight", {16}, false, 0x1.d0d204d854891p-3, 0x1.1e6424e481b67p-2},
      {"layer1.0.bn3.weight", {16}, true, 0x1.d4dfb067d6a82p-6, 0x1.04590777ec579p-5},
      {"layer2.0.downsample.1.weight", {16}, false, 0x1.00556c8fadcebp-2, 0x1.04b9e55b34518p-2},
      {"layer2.0.downsample.1.weight", {16}, true, 0x1.ebd72089ee890p-6, 0x1.f00e9ebdf4c92p-6},
      {"fc.bias", {10}, true, -0x1.24edc54602f00p-8, -0x1.9a75827b6508ap-5},
      {"bn1.running_var", {4}, false, 0x1.246e4572d9b05p+0, 0x1.17c06e5650914p+0},
      {"bn1.running_mean", {4}, true, 0x1.801f72e2a3e90p-5, 0x1.2702ca2e1ac33p-4},
      {"layer1.1.weight", {16}, true, 0x1.0a5a0e0129667p+0, 0x1.e05fafacfd37bp-1},
      {"bn1.num_batches_tracked", {}, false, 0, 0},
  };
  for (const auto& row : rows) {
    INFO(row.name << (row.steady ? ", steady" : ", mixed"));
    REQUIRE(hashed_state(row.name, row.shape, row.steady, 0) == row.element0);
    REQUIRE(hashed_state(row.name, row.shape, row.steady, 3) == row.element3);
  }
}

}  // namespace ringgrad::test::hashed_weights_test
