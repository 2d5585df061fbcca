// Module: a network or a part of one. It knows its parameters, buffers and children by name.
//
//   struct Net : nn::Module {
//     nn::Conv2d conv{1, 16, 5};
//     nn::Linear fc{16 * 12 * 12, 10};
//     Net() {
//       register_module("conv", conv);
//       register_module("fc", fc);
//     }
//     Tensor forward(const Tensor& x) override {
//       return fc(flatten(max_pool2d(relu(conv(x)), {.kernel = 2}), 1));
//     }
//   };
//
// A child is a member of its parent, which registers a reference to it, or is owned by it: a
// std::shared_ptr. Modules are not copied; one that moves, into a Sequential say, takes its members
// along, and whoever registered it follows. Parameters are Tensors: handles that optimizers and
// wrappers may keep. Not thread-safe.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>

#include "ringgrad/autograd/hook_handle.h"
#include "ringgrad/nn/named_tensors.h"
#include "ringgrad/nn/parameter.h"

namespace ringgrad::nn {

class Module {
 public:
  Module() : place_(std::make_shared<Module*>(this)) {}
  virtual ~Module();
  Module(Module&& other) noexcept;
  Module& operator=(Module&&) = delete;

  // The computation. Modules of another signature declare their own forward; calling this one on
  // them throws NotImplementedError.
  virtual Tensor forward(const Tensor& x);
  // forward(), and then the hooks in order of registration. What a hook returns takes the place of
  // the output, unless it is undefined.
  Tensor operator()(const Tensor& x) {
    return hooks_.empty() && !call_ ? forward(x) : forward_with_hooks(x);
  }
  using ForwardHook = std::function<Tensor(Module& module, const Tensor& x, const Tensor& y)>;
  HookHandle register_forward_hook(ForwardHook hook);
  // From now on `call` takes the place of forward() where the module is called; empty: itself.
  using Call = std::function<Tensor(Module& module, const Tensor& x)>;
  void call_by(Call call) { call_ = std::move(call); }

  // Batch norm and dropout behave differently in training. Sets all descendants too.
  void train(Flag on = true);
  void eval() { train(false); }
  void set_training(Flag on) { training_ = on; }  // of this module alone
  bool is_training() const { return training_; }

  // In order of registration, own ones before the children's; names are joined by dots:
  // "layer1.0.conv1.weight". A tensor registered twice (shared weights) is listed once, under its
  // first name; undefined ones are not listed. All that asks for children throws Error where a
  // child that was registered as a reference is no more. Without `recurse` this module's own alone.
  NamedTensors named_parameters(Flag recurse = true) const;
  NamedTensors named_buffers(Flag recurse = true) const;
  std::vector<Tensor> parameters(Flag recurse = true) const;
  std::vector<Tensor> buffers(Flag recurse = true) const;
  // This module and all below it, parents first, with their dotted names ("" for this one); each
  // once.
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<std::pair<std::string, Module*>> named_children() const;  // only those directly below
  std::vector<Module*> children() const;
  // f of this module and all below it, children first, each once: model.apply([](nn::Module& m) { …
  // }).
  void apply(const std::function<void(Module& module)>& f);
  int64_t num_parameters() const;  // elements

  // Moves parameters, their gradients and buffers; every handle follows.
  void to(Device device);
  // Converts them to a floating dtype. Integer buffers keep theirs, and batch norm stays in float32
  // where the dtype has 16 bits.
  void to(DType dtype);
  void zero_grad();

  // Parameters and buffers by name, without history, sharing memory with the module; torchvision's
  // names. They share it until the parameters move, as to() and the constructors of optimizers and
  // DistributedDataParallel make them do. Shared weights have all of their names here, as in
  // PyTorch.
  NamedTensors state_dict() const;
  // Copies values into the module by name; see copy_by_name() for what is accepted, refused and
  // reported.
  LoadReport load_state_dict(const NamedTensors& state, Flag strict = true);

  // How PyTorch prints a module: type_name(extra_repr()), or type_name( and a line for each child.
  // By default the name of its class, and nothing.
  virtual std::string type_name() const;
  virtual std::string extra_repr() const { return ""; }
  // Makes this module, a replica of `source`, compute as `source` does now. It copies the mode, the
  // forward hooks and who calls it, and follow_members() copies the rest. Parameters and buffers,
  // undefined ones too, are passed in pairs to `point`, which makes `own` name the tensor to
  // compute with. Submodules are not changed. Throws Error if the two have different types or
  // registered names.
  void follow(const Module& source,
              const std::function<void(Tensor& own, const Tensor& of_source)>& point);
  // Whether children that print alike share a line, "(0-2): 3 x ReLU()", as those of a ModuleList
  // do.
  virtual bool prints_alike_together() const { return false; }

 protected:
  // For members of type Parameter and Buffer, see parameter.h. Names are unique in the module,
  // without dots. An undefined value holds the name, as for a layer without a bias.
  // register_parameter marks values as requiring grad.
  std::shared_ptr<Registration> register_parameter(const std::string& name, const Tensor& value);
  std::shared_ptr<Registration> register_buffer(const std::string& name, const Tensor& value);
  // A member, which is destroyed with this module. Throws Error where this module would contain
  // itself.
  void register_module(const std::string& name, Module& child);
  // Owns the child together with whoever else does, and returns it.
  template <class Child>
  std::shared_ptr<Child> register_module(const std::string& name, std::shared_ptr<Child> child) {
    own(name, child);
    return child;
  }
  // Registers a module under this one's own name, and takes over its mode: the parameters keep the
  // names that they have in it. For wrappers.
  void adopt(Module& module);
  // Copies plain members that can change after construction, as BatchNorm does with its
  // normalization. A replica is made once, and would otherwise keep its own. REQUIRES: `source` has
  // this module's type.
  virtual void follow_members(const Module&) {}
  // The dtype that this module's own tensors take when it is converted to `dtype`.
  virtual DType storage_dtype(DType dtype) const { return dtype; }

 private:
  using Registrations = std::vector<std::shared_ptr<Registration>>;
  struct Child {
    std::string name;
    std::shared_ptr<Module*> place;  // the child's own place_
    std::shared_ptr<Module> owned;   // where this module owns it
  };
  void check_name(const std::string& name) const;
  std::shared_ptr<Registration> register_tensor(Registrations& list, const std::string& name,
                                                const Tensor& value);
  void add_child(const std::string& name, Module& child, std::shared_ptr<Module> owned);
  void own(const std::string& name, std::shared_ptr<Module> child);
  static Module& module_of(const Child& child);
  Tensor forward_with_hooks(const Tensor& x);
  NamedTensors collect(Registrations Module::*which, bool recurse = true) const;

  Registrations parameters_;
  Registrations buffers_;
  std::vector<Child> children_;
  std::map<int, ForwardHook> hooks_;
  Call call_;
  int next_hook_ = 0;
  bool training_ = true;
  // The place of this module, for those who have registered it; null when it is no more.
  std::shared_ptr<Module*> place_;
};

// As PyTorch's print(module).
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace ringgrad::nn
