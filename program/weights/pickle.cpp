#include "ringgrad/program/weights/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "ringgrad/core/base/check.h"

namespace ringgrad::program {
namespace {

constexpr size_t kMaxValues = 2 << 20;  // some 25 stand for a tensor
constexpr size_t kMaxTensors = 65'536;
constexpr size_t kMaxKeyBytes = 100;  // "17"
constexpr size_t kMaxNamed = 10;      // in a message

constexpr std::pair<const char*, DType> kStorages[] = {
    {"FloatStorage", DType::Float32}, {"DoubleStorage", DType::Float64},
    {"HalfStorage", DType::Float16},  {"BFloat16Storage", DType::BFloat16},
    {"LongStorage", DType::Int64},    {"IntStorage", DType::Int32},
    {"ByteStorage", DType::UInt8},    {"BoolStorage", DType::Bool}};

// Values lie in one vector and name each other by their places: whatever a pickle nests or ties
// into a knot, nothing here calls itself.
using Ref = uint32_t;

struct Value {
  enum Kind { None, Number, Text, Tuple, List, Dict, Name, Storage, Tensor, Other } kind = None;
  int64_t number = 0;           // an int or a bool; a storage's or a tensor's place in tensors_
  std::string text = {};        // a string; "module.name"
  std::vector<Ref> items = {};  // of a dictionary key, value, key, value, …
};

class Machine {
 public:
  Machine(std::span<const uint8_t> pickle, const std::string& file) : bytes_(pickle), file_(file) {}

  // Runs to STOP and returns what is on the top of the stack then.
  Ref run() {
    while (true) {
      const size_t at = at_;
      const uint8_t code = byte();
      if (code == '.') return pop();
      step(code, at);
    }
  }

  const Value& operator[](Ref ref) const { return values_[ref]; }
  const PickledTensor& tensor_of(const Value& value) const {
    return tensors_[static_cast<size_t>(value.number)];
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(str("convert: ", file_, ": ", parts...));
  }

 private:
  void step(uint8_t code, size_t at) {
    switch (code) {
      case 0x80: {  // PROTO
        const int protocol = byte();
        if (protocol != 2)
          fail("its pickle is of protocol ", protocol, ", expected 2, as torch.save() writes it");
        return;
      }
      case '}': return push({.kind = Value::Dict});
      case ']': return push({.kind = Value::List});
      case ')': return push({.kind = Value::Tuple});
      case 'N': return push({});
      case 0x88: return push({.kind = Value::Number, .number = 1});  // True
      case 0x89: return push({.kind = Value::Number, .number = 0});  // False
      case 'K': return push({.kind = Value::Number, .number = static_cast<int64_t>(number(1))});
      case 'M': return push({.kind = Value::Number, .number = static_cast<int64_t>(number(2))});
      case 'J': return push({.kind = Value::Number, .number = static_cast<int32_t>(number(4))});
      case 0x8a: return long1();
      case 'G':  // a float, of no use here
        take(8);
        return push({.kind = Value::Other});
      case 'X': return push({.kind = Value::Text, .text = text(number(4))});
      case '(': return marks_.push_back(stack_.size());
      case 't': return push({.kind = Value::Tuple, .items = from_mark()});
      case 0x85:
      case 0x86:
      case 0x87: return push({.kind = Value::Tuple, .items = popped(code - 0x84u)});
      case 'q': memo_[static_cast<uint32_t>(number(1))] = top(); return;
      case 'r': memo_[static_cast<uint32_t>(number(4))] = top(); return;
      case 'h': return push_memo(number(1));
      case 'j': return push_memo(number(4));
      case 'c': return name();
      case 'Q': return storage();
      case 'R': return build();
      case 'b': return set_state();
      case 's': return extend(popped(2), Value::Dict);
      case 'u': return extend(from_mark(), Value::Dict);
      case 'a': return extend(popped(1), Value::List);
      case 'e': return extend(from_mark(), Value::List);
      default:
        fail("byte ", at, " of its pickle is the instruction ", int{code},
             ", which no state_dict of tensors needs; nothing was executed. Save a state_dict: "
             "torch.save(model.state_dict(), …)");
    }
  }

  // ---- bytes
  // --------------------------------------------------------------------------------------
  std::span<const uint8_t> take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("its pickle is cut off at byte ", bytes_.size());
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  uint8_t byte() { return take(1)[0]; }
  uint64_t number(size_t length) {
    uint64_t value = 0;
    const auto bytes = take(length);
    for (size_t i = length; i-- > 0;) value = value << 8 | bytes[i];
    return value;
  }
  std::string text(uint64_t length) {
    const auto bytes = take(length);
    return std::string(bytes.begin(), bytes.end());
  }
  std::string line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), '\n');
    std::string text(rest.begin(), end);
    take(text.size() + 1);
    return text;
  }
  void long1() {
    const size_t length = byte();
    if (length > 8) fail("a number of ", length, " bytes, expected at most 8");
    uint64_t value = number(length);
    const size_t unused = 64 - 8 * length;
    if (length > 0) value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    push({.kind = Value::Number, .number = static_cast<int64_t>(value)});
  }

  // ---- the stack
  // ----------------------------------------------------------------------------------
  void push(Value value) {
    if (values_.size() >= kMaxValues) fail("its pickle has more than ", kMaxValues, " values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Ref top() const {
    if (stack_.size() <= floor()) fail("its pickle takes from an empty stack");
    return stack_.back();
  }
  Ref pop() {
    const Ref ref = top();
    stack_.pop_back();
    return ref;
  }
  std::vector<Ref> popped(size_t count) {
    std::vector<Ref> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<Ref> from_mark() {
    if (marks_.empty()) fail("its pickle lacks a mark");
    std::vector<Ref> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                           stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_memo(uint64_t place) {
    const auto found = memo_.find(static_cast<uint32_t>(place));
    if (found == memo_.end()) fail("its pickle names value ", place, ", which it has not made");
    stack_.push_back(found->second);
  }

  // ---- what it builds
  // -----------------------------------------------------------------------------
  void name() {
    const std::string module = line();
    const std::string own = line();
    const bool known = (module == "collections" && own == "OrderedDict") ||
                       (module == "torch._utils" &&
                        (own == "_rebuild_tensor_v2" || own == "_rebuild_parameter")) ||
                       (module == "torch" && own.ends_with("Storage"));
    if (!known)
      fail("it names ", module, ".", own,
           ", which no state_dict of tensors needs; nothing was executed. Save a state_dict: "
           "torch.save(model.state_dict(), …)");
    push({.kind = Value::Name, .text = module + "." + own});
  }

  const Value& item(const Value& tuple, size_t i, Value::Kind kind) const {
    if (i >= tuple.items.size() || values_[tuple.items[i]].kind != kind)
      fail("a tensor or storage is described otherwise than torch.save() does it");
    return values_[tuple.items[i]];
  }

  void push_tensor(Value::Kind kind, PickledTensor tensor) {
    tensors_.push_back(std::move(tensor));
    push({.kind = kind, .number = static_cast<int64_t>(tensors_.size() - 1)});
  }

  // ("storage", torch.FloatStorage, "0", "cpu", elements)
  void storage() {
    const Value& tuple = values_[pop()];
    const std::string& type = item(tuple, 1, Value::Name).text;
    for (const auto& [known, dtype] : kStorages)
      if (type == std::string("torch.") + known) {
        const int64_t elements = item(tuple, 4, Value::Number).number;
        const std::string& key = item(tuple, 2, Value::Text).text;
        if (item(tuple, 0, Value::Text).text != "storage" || elements < 0 ||
            key.size() > kMaxKeyBytes)
          fail("a storage of ", elements, " elements, or with a key of ", key.size(), " bytes");
        return push_tensor(Value::Storage, {.name = "",
                                            .storage = key,
                                            .storage_elements = elements,
                                            .dtype = dtype,
                                            .offset = 0,
                                            .shape = {},
                                            .strides = {}});
      }
    fail("a tensor lies in a ", type,
         ", and there is no such dtype here; expected float32, float64, float16, bfloat16, int64, "
         "int32, uint8 or bool");
  }

  void build() {
    const Value& arguments = values_[pop()];
    const std::string& name = values_[pop()].text;
    if (arguments.kind != Value::Tuple) fail("what ", name, " is given is no tuple");
    if (name == "collections.OrderedDict" && arguments.items.empty())
      return push({.kind = Value::Dict});
    if (name == "torch._utils._rebuild_tensor_v2")
      return push_tensor(Value::Tensor, tensor(arguments));
    if (name == "torch._utils._rebuild_parameter" && !arguments.items.empty() &&
        values_[arguments.items[0]].kind == Value::Tensor)
      return stack_.push_back(arguments.items[0]);
    fail("its pickle calls ", name.empty() ? "what is no name" : name.substr(0, kMaxKeyBytes),
         " with ", arguments.items.size(), " arguments, which no state_dict does");
  }

  Shape sizes(const Value& tuple) const {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < tuple.items.size(); ++i) {
      sizes.push_back(item(tuple, i, Value::Number).number);
      if (sizes.back() < 0 || sizes.size() > size_t{kMaxDims})
        fail("a tensor has a size or stride of ", sizes.back(), ", or more than ", kMaxDims,
             " dimensions");
    }
    return Shape(sizes);
  }

  // (storage, offset, size, stride, requires_grad, hooks)
  PickledTensor tensor(const Value& arguments) const {
    PickledTensor made = tensor_of(item(arguments, 0, Value::Storage));
    made.offset = item(arguments, 1, Value::Number).number;
    made.shape = sizes(item(arguments, 2, Value::Tuple));
    made.strides = sizes(item(arguments, 3, Value::Tuple));
    int64_t elements = 1;
    int64_t last = made.offset;
    bool fits = made.offset >= 0 && made.shape.dim() == made.strides.dim();
    bool empty = false;
    for (int d = 0; fits && d < made.shape.dim(); ++d) {
      int64_t step = 0;
      empty = empty || made.shape[d] == 0;
      // Sizes must multiply without overflow even where another one is 0.
      fits = !__builtin_mul_overflow(elements, std::max<int64_t>(1, made.shape[d]), &elements) &&
             !__builtin_mul_overflow(std::max<int64_t>(1, made.shape[d]) - 1, made.strides[d],
                                     &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || (empty ? made.offset > made.storage_elements : last >= made.storage_elements))
      fail("a tensor of shape ", made.shape, " with strides ", made.strides, " from element ",
           made.offset, " on does not lie in its storage of ", made.storage_elements, " elements");
    return made;
  }

  // state_dict() has the versions of its modules as an attribute, which says nothing of tensors.
  void set_state() {
    pop();
    if (values_[top()].kind != Value::Dict)
      fail("its pickle sets attributes of what is no dictionary");
  }

  void extend(const std::vector<Ref>& items, Value::Kind kind) {
    Value& target = values_[top()];
    if (target.kind != kind || (kind == Value::Dict && items.size() % 2 != 0))
      fail("its pickle puts values into what takes none");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  std::span<const uint8_t> bytes_;
  const std::string& file_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<PickledTensor> tensors_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, Ref> memo_;
};

// The names of a dictionary's entries that are dictionaries of tensors: "state_dict, ema".
std::string dictionaries_in(const Machine& machine, const Value& dict) {
  std::string names;
  size_t count = 0;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& key = machine[dict.items[i]];
    const Value& value = machine[dict.items[i + 1]];
    const bool has_tensors = value.kind == Value::Dict && value.items.size() >= 2 &&
                             machine[value.items[1]].kind == Value::Tensor;
    if (key.kind == Value::Text && has_tensors && ++count <= kMaxNamed)
      names += (names.empty() ? "" : ", ") + key.text.substr(0, 100);
  }
  return names;
}

}  // namespace

std::vector<PickledTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& file,
                                           const std::string& key) {
  Machine machine(pickle, file);
  const Value* dict = &machine[machine.run()];
  if (dict->kind != Value::Dict)
    machine.fail("it holds no dictionary; save one: torch.save(model.state_dict(), …)");
  const std::string inside = dictionaries_in(machine, *dict);
  if (!key.empty()) {
    const Value* found = nullptr;
    for (size_t i = 0; i + 1 < dict->items.size(); i += 2)
      if (machine[dict->items[i]].text == key) found = &machine[dict->items[i + 1]];
    if (!found || found->kind != Value::Dict)
      machine.fail("it has no dictionary '", key, "'", inside.empty() ? "" : ", but ", inside);
    dict = found;
  }
  std::vector<PickledTensor> tensors;
  std::set<std::string> names;
  for (size_t i = 0; i + 1 < dict->items.size(); i += 2) {
    const Value& name = machine[dict->items[i]];
    const Value& value = machine[dict->items[i + 1]];
    if (name.kind != Value::Text || value.kind != Value::Tensor)
      machine.fail(
          "it is no state_dict: ",
          name.kind == Value::Text ? "'" + name.text.substr(0, kMaxKeyBytes) + "'" : "a key",
          value.kind == Value::Tensor ? " is no name" : " is no tensor",
          inside.empty() ? "" : "; it has one, or several: --key " + inside);
    if (!names.insert(name.text).second)
      machine.fail("it has '", name.text.substr(0, kMaxKeyBytes), "' twice");
    if (tensors.size() >= kMaxTensors) machine.fail("it has more than ", kMaxTensors, " tensors");
    tensors.push_back(machine.tensor_of(value));
    tensors.back().name = name.text;
  }
  if (tensors.empty()) machine.fail("its dictionary has no tensors");
  return tensors;
}

}  // namespace ringgrad::program
