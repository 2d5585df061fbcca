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
// A child is either a member of its parent, which registers a reference to it, or owned by it
// through a std::shared_ptr. Modules are not copied. A module that moves, for example into a
// Sequential, takes its members along, and its parents refer to the new place. Parameters are
// Tensors: handles that optimizers and wrappers may keep. Not thread-safe.
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

  // The computation. Modules with another signature declare their own forward. Calling this one on
  // them throws NotImplementedError.
  virtual Tensor forward(const Tensor& x);
  // Calls forward(), and then the hooks in order of registration. If a hook returns a defined
  // tensor, it replaces the output. Calls with more arguments run them, too, with the first one.
  // Modules that give several tensors (LSTM, MultiheadAttention) run none.
  Tensor operator()(const Tensor& x) {
    return after_hooks(x, call_ ? call_(*this, x) : forward(x));
  }
  // Returns true if a call does nothing but forward().
  bool just_forwards() const { return hooks_.empty() && !call_; }
  using ForwardHook = std::function<Tensor(Module& module, const Tensor& x, const Tensor& y)>;
  HookHandle register_forward_hook(ForwardHook hook);
  // Makes calls of the module run `call` instead of forward(). An empty `call` restores forward().
  using Call = std::function<Tensor(Module& module, const Tensor& x)>;
  void call_by(Call call) { call_ = std::move(call); }

  // Sets the mode of this module and all descendants. Batch norm and dropout behave differently in
  // training.
  void train(Flag on = true);
  void eval() { train(false); }
  void set_training(Flag on) { training_ = on; }  // sets this module only
  bool is_training() const { return training_; }

  // These list entries in order of registration, a module's own before its children's. Names are
  // joined by dots: "layer1.0.conv1.weight". A tensor registered twice (shared weights) is listed
  // once, under its first name; undefined ones are not listed. Without `recurse` only this module's
  // own entries are listed. Every function that visits children throws Error if a child registered
  // as a reference no longer exists.
  NamedTensors named_parameters(Flag recurse = true) const;
  NamedTensors named_buffers(Flag recurse = true) const;
  std::vector<Tensor> parameters(Flag recurse = true) const;
  std::vector<Tensor> buffers(Flag recurse = true) const;
  // Returns this module and all modules below it, parents first and each once, with their dotted
  // names ("" for this one).
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<std::pair<std::string, Module*>> named_children() const;  // only direct children
  std::vector<Module*> children() const;
  // Calls f for this module and all modules below it, children first and each once:
  // model.apply([](nn::Module& m) { … }).
  void apply(const std::function<void(Module& module)>& f);
  int64_t num_parameters() const;  // counts elements

  // Moves parameters, their gradients and buffers. All handles follow.
  void to(Device device);
  // Converts them to a floating dtype. Integer buffers keep their dtype, and batch norm stays in
  // float32 if the dtype has 16 bits.
  void to(DType dtype);
  void zero_grad();

  // Returns parameters and buffers under torchvision's names, without history. They share memory
  // with the module until the parameters move; to() and the constructors of optimizers and
  // DistributedDataParallel move them. Shared weights appear under all of their names, as in
  // PyTorch.
  NamedTensors state_dict() const;
  // Copies values into the module by name. copy_by_name() says what is accepted, refused and
  // reported.
  LoadReport load_state_dict(const NamedTensors& state, Flag strict = true);

  // These define how a module prints, as in PyTorch: type_name(extra_repr()), or type_name( and a
  // line for each child. The defaults are the name of the class and nothing.
  virtual std::string type_name() const;
  virtual std::string extra_repr() const { return ""; }
  // Makes this module, a replica of `source`, compute as `source` does now. Copies the mode, the
  // forward hooks and call_by()'s function; follow_members() copies the rest. Parameters and
  // buffers, including undefined ones, are passed in pairs to `point`, which must make `own` name
  // the tensor to compute with. Submodules are not changed. Throws Error if the two have different
  // types or registered names.
  void follow(const Module& source,
              const std::function<void(Tensor& own, const Tensor& of_source)>& point);
  // Returns true if children that print alike share a line, "(0-2): 3 x ReLU()", as in a
  // ModuleList.
  virtual bool prints_alike_together() const { return false; }

 protected:
  // These initialise members of type Parameter and Buffer, see parameter.h. Names are unique in the
  // module and contain no dots. An undefined value reserves the name, as in a layer without a bias.
  // register_parameter marks values as requiring grad.
  std::shared_ptr<Registration> register_parameter(const std::string& name, const Tensor& value);
  std::shared_ptr<Registration> register_buffer(const std::string& name, const Tensor& value);
  // Registers a member, which is destroyed with this module. Throws Error if this module would
  // contain itself.
  void register_module(const std::string& name, Module& child);
  // Shares ownership of the child and returns it.
  template <class Child>
  std::shared_ptr<Child> register_module(const std::string& name, std::shared_ptr<Child> child) {
    own(name, child);
    return child;
  }
  // Registers a module without a name of its own and takes over its mode. Its parameters keep their
  // names. For wrappers.
  void adopt(Module& module);
  // Runs the hooks on y, this module's output for x, and returns it or what replaces it. For calls
  // with more arguments.
  Tensor after_hooks(const Tensor& x, Tensor y);
  // Copies plain members that may change after construction, such as BatchNorm's normalization.
  // Otherwise a replica, which is made once, would keep the old ones. REQUIRES: `source` has this
  // module's type.
  virtual void follow_members(const Module&) {}
  // Returns the dtype of this module's own tensors after a conversion to `dtype`.
  virtual DType storage_dtype(DType dtype) const { return dtype; }

 private:
  using Registrations = std::vector<std::shared_ptr<Registration>>;
  struct Child {
    std::string name;
    std::shared_ptr<Module*> place;  // the child's place_
    std::shared_ptr<Module> owned;   // the child, if this module owns it
  };
  void check_name(const std::string& name) const;
  std::shared_ptr<Registration> register_tensor(Registrations& list, const std::string& name,
                                                const Tensor& value);
  void add_child(const std::string& name, Module& child, std::shared_ptr<Module> owned);
  void own(const std::string& name, std::shared_ptr<Module> child);
  static Module& module_of(const Child& child);
  NamedTensors collect(Registrations Module::*which, bool recurse = true) const;

  Registrations parameters_;
  Registrations buffers_;
  std::vector<Child> children_;
  std::map<int, ForwardHook> hooks_;
  Call call_;
  int next_hook_ = 0;
  bool training_ = true;
  // Points to this module for those who registered it. It holds null once the module is destroyed.
  std::shared_ptr<Module*> place_;
};

// Prints as PyTorch's print(module).
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace ringgrad::nn
