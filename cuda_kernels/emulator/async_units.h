// The units of a multiprocessor that work beside the threads of a block: mbarriers, tensor copies
// (TMA), and the products of warpgroups (wgmma). They are common/hopper.cuh's other half.
//
// A copy lands piece by piece, each piece at a moment that the schedule chooses, and its target is
// NaN until then. A store reads its source late. A product is complete when its warp waits for it,
// and no earlier; each of the four warps waits alone, and its sums are NaN until then. So a
// forgotten wait shows as a wrong result in every schedule. Most mistakes are named instead,
// because a GPU would not report them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/grid.h"

struct CUtensorMap_st;

namespace ringgrad::emulator {

inline constexpr int kWarpSize = 32;
inline constexpr int kWarpsOfGroup = 4;

// The coordinates of a tensor copy, innermost first; with offsets it is an im2col copy.
struct Coordinates {
  std::array<int, 5> at{};
  int rank = 0;
  bool im2col = false;
  std::array<int, 3> offsets{};
};

// A part of a copy that is contiguous in global memory.
struct Row {
  uint32_t offset;  // in the tile
  uint32_t bytes;
  // The part inside of the tensor; the rest is zero.
  char* global;
  uint32_t skip;
  uint32_t inside;
};
struct Box {
  std::vector<Row> rows;
  uint32_t bytes = 0;
  uint32_t span = 16;  // bytes within which the swizzle moves chunks of 16
  int element_type = 0;
  uint8_t fill = 0;
};

// An operand of wgmma in shared memory.
struct Operand {
  uint64_t descriptor;
  bool transposed;
};

// The arguments of wgmma.
struct ProductCall {
  float* sums;
  int columns;
  bool accumulate;
  enum Type : uint8_t { Float16, BFloat16, TFloat32 } type;
  Operand a;
  Operand b;
  const unsigned* words;  // a in registers, or nullptr
  Site site;

  bool same_as(const ProductCall& other) const {
    return columns == other.columns && accumulate == other.accumulate && type == other.type &&
           a.descriptor == other.a.descriptor && a.transposed == other.a.transposed &&
           b.descriptor == other.b.descriptor && b.transposed == other.b.transposed &&
           !words == !other.words;
  }
};

class Block;

class AsyncUnits {
 public:
  explicit AsyncUnits(Block& block) : block_(block) {}

  void begin();  // of a cluster
  void end();    // without an error
  void exit_thread();
  void exit_member();  // the running thread is the last of its block
  // True if something waits for advance().
  bool busy() const { return !pieces_.empty() || !store_pieces_.empty() || !busy_warps_.empty(); }
  // Lets one piece of work happen. Returns false if there is none.
  bool advance();
  // Describes what a thread that waits for `object` lacks, in brackets; "" if it is not one of
  // ours.
  std::string describe(const void* object) const;
  // Returns the block whose dynamic shared memory it is, or -1.
  int member_of(const void* address) const;

  // -- mbarriers (mbarrier.cpp): `barrier` is in shared memory of any block of the cluster ---
  void init(const uint64_t* barrier, unsigned arrivals, Site site);
  void invalidate(const uint64_t* barrier, Site site);
  void fence_init();
  void arrive(const uint64_t* barrier, bool remote, Site site);
  void expect(const uint64_t* barrier, unsigned bytes, Site site);
  // Returns true if the phase of this parity is complete; with `wait` it waits for that.
  bool test(const uint64_t* barrier, unsigned parity, bool wait, Site site);

  // -- copies (tensor_copy.cpp): they act on the blocks of the cluster in `mask`; 0 stands for the
  // running one ---
  void load(void* to, const Box& box, const uint64_t* barrier, unsigned mask, Site site);
  void store(const Box& box, const void* from, bool add, Site site);
  Box tensor_box(const CUtensorMap_st* map, const Coordinates& coordinates, Site site);
  Box bulk_box(const void* global, const void* shared, unsigned bytes, Site site);
  void commit();
  void wait_prior(int groups, bool read_only, Site site);

  // -- products (warpgroup.cpp); a warp calls them together ---
  std::string fence_products(int warp);
  std::string issue(int warp, const std::array<ProductCall*, kWarpSize>& lanes);
  void commit_products(int warp);
  void wait_products(int groups, Site site);

  // -- the two ways to shared memory (proxies.cpp) ---
  // The running thread has written shared memory in the usual way.
  void note_write(const void* address, size_t bytes);
  void fence_proxy();

 private:
  struct Mbarrier {
    int64_t expected;
    int64_t pending;
    int64_t bytes = 0;  // announced, but not yet landed
    uint64_t phase = 0;
    int initialised_by;
    bool fenced = false;
    std::vector<int> waiting;
  };
  struct Copy {
    enum Kind : uint8_t { Load, Store, Add } kind;
    int thread;
    int member;  // whose shared memory it reads or writes
    Site site;
    uint32_t shared;
    Box box;
    const uint64_t* barrier = nullptr;
    int64_t group = 0;
    int pieces = 0;  // left
    bool read = false;
    bool told = false;  // the thread that waits knows that it has read
    // A store's source when it was started, and when it was read.
    std::vector<uint8_t> source;
  };
  struct Piece {
    std::shared_ptr<Copy> copy;
    int number;
  };
  // A thread's groups of stores.
  struct Stores {
    int64_t group = 0;
    std::vector<std::shared_ptr<Copy>> copies;
    bool open = false;
  };
  // 16 bytes of shared memory.
  struct Granule {
    bool in_flight = false;  // a copy has yet to land here
    uint16_t readers = 0;    // stores that have yet to read it
    int writer = -1;         // the thread that wrote it last in the usual way; -1: a copy did
    uint64_t written = 0;
  };

  struct Product {
    ProductCall call;
    Site site;
    int left = kWarpsOfGroup;  // warps that have not completed it
    std::vector<uint8_t> b_bytes;
    std::vector<float> b;  // [K, N]
    struct Rows {
      std::vector<uint8_t> bytes;
      std::vector<float> a;   // [16, K]
      float* sums = nullptr;  // the first lane's accumulators
    };
    std::array<Rows, kWarpsOfGroup> rows;
  };
  struct Warpgroup {
    uint64_t first = 0;  // number of products.front()
    std::deque<Product> products;
  };
  // The accumulators of products that are not complete. The program sees NaN meanwhile.
  struct Sums {
    std::array<float*, kWarpSize> at;
    int columns;
    int products = 0;
    std::vector<float> values;  // [32, N / 2]
  };
  struct Warp {
    uint64_t issued = 0;
    uint64_t committed = 0;
    uint64_t completed = 0;
    bool fenced = false;
    std::deque<uint64_t> groups;  // products issued when each was committed
    std::map<float*, Sums> sums;
    std::vector<int> waiting;
  };

  uint32_t shared_address(int member, const void* p, size_t bytes, const char* name,
                          Site site) const;
  char* shared_at(int member, uint32_t address) const;
  Granule& granule(int member, uint32_t address);

  Mbarrier& find(const uint64_t* barrier, const char* name, Site site);
  void flip_if_complete(const uint64_t* barrier, Mbarrier& state);
  void complete_bytes(const Copy& copy, uint32_t bytes);

  void report(const Copy& copy) const;
  void start(std::shared_ptr<Copy> copy);
  void run(const Piece& piece);
  void land(Copy& copy, int piece);
  void read_source(Copy& copy);
  void write_target(const Copy& copy, int piece);
  void check_reaches(const Copy& copy) const;

  // Operands are read when the first warp issues a product, compared when the others do, and
  // compared again when each has completed it.
  enum class Reading : uint8_t { First, Issued, Completed };
  std::string read_operands(int warp, Product& product, bool completed);
  std::string read_chunk(int warp, const Product& product, uint32_t address, Reading reading,
                         uint8_t* to);
  void complete_product(int warp);
  void compute(int warp, Product& product, Sums& sums) const;

  std::string unfenced(int member, uint32_t address, int reader);

  Block& block_;
  std::unordered_map<const uint64_t*, Mbarrier> mbarriers_;
  std::vector<Piece> pieces_;  // of loads
  std::vector<Piece> store_pieces_;
  std::map<int, Stores> stores_;
  std::vector<int> waiting_for_stores_;
  std::vector<std::vector<Granule>> granules_;
  std::vector<Warpgroup> warpgroups_;
  std::vector<Warp> warps_;
  std::vector<int> busy_warps_;
  uint64_t clock_ = 0;
  std::vector<uint64_t> fences_;  // by thread: the clock at its last proxy fence
  bool used_ = false;
};

}  // namespace ringgrad::emulator
