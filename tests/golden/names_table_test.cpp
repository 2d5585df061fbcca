// One file, because it is one table: the names that others' programs use most, with their form
// here. Each form is compiled and each row named is there. docs/names.md is this table.
#include <fstream>
#include <map>
#include <set>

#include "ringgrad/core/base/file.h"
#include "ringgrad/ringgrad.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/golden/golden.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test::names_table_test {

// The forms speak of these, and are never run.
namespace forms {
extern const Tensor x, y, h, c, w, b, t, mask, places, lengths, q, k, v, other, weights;
extern const std::vector<Tensor> tensors;
extern nn::LSTM& lstm;
extern nn::GRU& gru;
extern nn::RNN& rnn;
extern nn::MultiheadAttention& attention;
extern nn::Module& net;
extern const nn::PackedSequence packed;
extern optim::Optimizer& optimizer;
extern optim::LBFGS& lbfgs;
extern optim::WeightAverage& average;
extern optim::ReduceLROnPlateau& plateau;
extern const std::function<Tensor()> closure;
extern const std::shared_ptr<const Dataset> samples;
extern const std::shared_ptr<Sampler> sampler;
extern const MakeBatch make_batch;
}  // namespace forms
using namespace forms;

namespace {

struct Name {
  const char* torch;
  // Rows of tests/kernels/op_specs*.cpp or tests/golden/ops.json, or files of tests/.
  std::vector<std::string> rows;
  std::string here;
};
struct Subject {
  std::string title;
  int programs;  // that use one of the names; 0 where that was not counted
  std::vector<Name> names;
};

#define ROWS(...) \
  { __VA_ARGS__ }
#define NAME(TORCH, LIST, ...)                   \
  [] {                                           \
    static_assert(requires { __VA_ARGS__; });    \
    return Name{TORCH, ROWS LIST, #__VA_ARGS__}; \
  }()

std::vector<Subject> network_names() {
  return {
      {"Losses",
       100,
       {NAME("BCELoss", ("binary_cross_entropy mean"), nn::BCELoss{}(x, t)),
        NAME("BCEWithLogitsLoss", ("binary_cross_entropy_with_logits", "bce logits weighted mean"),
             nn::BCEWithLogitsLoss({.weight = w, .pos_weight = b})(x, t)),
        NAME("CrossEntropyLoss", ("cross_entropy", "cross_entropy of probabilities mean"),
             nn::CrossEntropyLoss({.weight = w, .ignore_index = 0})(x, t)),
        NAME("NLLLoss", ("nll_loss"), nn::NLLLoss{}(x, t)),
        NAME("MSELoss", ("mse_loss, mean"), nn::MSELoss({.reduction = Reduction::Sum})(x, t)),
        NAME("L1Loss", ("l1_loss mean"), nn::L1Loss{}(x, t)),
        NAME("SmoothL1Loss", ("smooth_l1_loss mean"), nn::SmoothL1Loss{}(x, t)),
        NAME("HuberLoss", ("huber_loss mean"), nn::HuberLoss{}(x, t)),
        NAME("KLDivLoss", ("kl_div mean", "kl_div log mean"),
             nn::KLDivLoss({.batchmean = true})(x, t)),
        NAME("SoftMarginLoss", ("soft_margin_loss mean"), nn::SoftMarginLoss{}(x, t)),
        NAME("HingeEmbeddingLoss", ("hinge_embedding_loss mean"), nn::HingeEmbeddingLoss{}(x, t)),
        NAME("MarginRankingLoss", ("margin_ranking_loss mean"), nn::MarginRankingLoss{}(x, y, t)),
        NAME("CosineEmbeddingLoss", ("cosine_embedding_loss mean"),
             nn::CosineEmbeddingLoss{}(x, y, t)),
        NAME("TripletMarginLoss", ("triplet_margin_loss mean 0"),
             nn::TripletMarginLoss({.margin = 2})(x, y, other)),
        NAME("PoissonNLLLoss", ("poisson_nll_loss mean"), nn::PoissonNLLLoss{}(x, t)),
        NAME("GaussianNLLLoss", ("gaussian_nll_loss mean"), nn::GaussianNLLLoss{}(x, t, w))}},
      {"Attention",
       17,
       {NAME("scaled_dot_product_attention", ("attention causal", "attention masked"),
             scaled_dot_product_attention(q, k, v, mask, 0, true)),
        NAME("MultiheadAttention", ("MultiheadAttention 1"), attention(q, k, v)),
        NAME("TransformerEncoderLayer", ("TransformerEncoderLayer 0"),
             nn::TransformerEncoderLayer(8, 2)),
        NAME("TransformerEncoder", ("TransformerEncoderLayer 1"),
             nn::TransformerEncoder{6, 8, 2})}},
      {"Borders",
       17,
       {NAME("ReflectionPad2d", ("module ReflectionPad2d", "pad reflect"),
             nn::ReflectionPad2d{1}(x)),
        NAME("ZeroPad2d", ("module ZeroPad2d"), nn::ZeroPad2d{{1, 2, 0, -1}}(x)),
        NAME("ReplicationPad1d", ("module ReplicationPad1d", "pad replicate"),
             nn::ReplicationPad1d{1}(x)),
        NAME("CircularPad2d", ("module CircularPad2d", "pad circular"), nn::CircularPad2d{1}(x)),
        NAME("ConstantPad2d", ("module ConstantPad2d"), nn::ConstantPad2d{1, 0.5}(x)),
        NAME("F.pad, asymmetric and negative", ("pad", "pad away", "pad with widths that remove"),
             pad(x, {1, -2}))}},
      {"Recurrence",
       13,
       {NAME("LSTM", ("LSTM deep", "lstm_layer", "lstm_layer in reverse"),
             lstm(x, std::tuple(h, c))),
        NAME("GRU", ("GRU deep", "gru_layer", "gru_layer in reverse"), gru(x, h)),
        NAME("RNN", ("RNN", "rnn_layer"), rnn(x, h)),
        NAME("pack_padded_sequence",
             ("packed LSTM deep", "packed GRU deep", "lstm_layer of packed rows in reverse"),
             lstm(nn::pack_padded_sequence(x, lengths, {.enforce_sorted = false}))),
        NAME("pad_packed_sequence", ("packed LSTM"),
             nn::pad_packed_sequence(packed, {.batch_first = true, .total_length = 9})),
        NAME("pad_sequence", ("pad_sequence"), nn::pad_sequence(tensors, true, -1)),
        NAME("pack_sequence", ("pack_sequence"), nn::pack_sequence(tensors))}},
      {"InstanceNorm",
       12,
       {NAME("InstanceNorm1d", ("instance_norm"), nn::InstanceNorm1d{8}(x)),
        NAME("InstanceNorm2d", ("module InstanceNorm2d"),
             nn::InstanceNorm2d{8, {.affine = true}}(x))}},
      {"PixelShuffle; unfold",
       5,
       {NAME("PixelShuffle", ("module PixelShuffle", "pixel_shuffle"), nn::PixelShuffle{2}(x)),
        NAME("PixelUnshuffle", ("pixel_unshuffle"), nn::PixelUnshuffle{2}(x)),
        NAME("nn.Unfold", ("module Unfold", "unfold"), nn::Unfold({.kernel = 3})(x)),
        NAME("Tensor.unfold", ("unfold of rows"), x.unfold(1, 3, 2))}},
      {"Nonlinearities and dropouts",
       3,
       {NAME("Mish", ("mish"), nn::Mish{}(x)), NAME("Hardswish", ("hardswish"), nn::Hardswish{}(x)),
        NAME("ReLU6", ("relu6"), nn::ReLU6{}(x)),
        NAME("F.gumbel_softmax", ("golden/names_test.cpp"), gumbel_softmax(x, 0.5, true)),
        NAME("timm's drop_path", ("golden/names_test.cpp"), drop_path(x, 0.1)),
        NAME("Dropout2d", ("golden/module_print_test.cpp"), nn::Dropout2d{0.2}(x)),
        NAME("AlphaDropout", ("golden/names_test.cpp"), nn::AlphaDropout{0.2}(x))}},
      {"Convolutions, pooling and products",
       0,
       {NAME("ceil_mode", ("max_pool2d ceil 3 2 1", "avg_pool2d ceil 2 3 1 1"),
             nn::MaxPool2d({.kernel = 3, .ceil_mode = true})(x)),
        NAME("convolutions without a batch",
             ("conv2d of one", "conv_transpose2d of one", "conv1d of one"), conv2d(x, w, b)),
        NAME("matmul of vectors, 4-D, broadcast", ("matmul", "matmul of repeated batches"),
             matmul(x, y))}},
  };
}

std::vector<Subject> tensor_names() {
  return {
      {"Modules' own parameters",
       50,
       {NAME("parameters(recurse=False)", ("golden/names_test.cpp"), net.parameters(false)),
        NAME("named_parameters(recurse=False)", ("golden/names_test.cpp"),
             net.named_parameters(false))}},
      {"A tensor as another one",
       34,
       {NAME("view_as", ("golden/names_test.cpp"), x.view_as(other)),
        NAME("reshape_as", ("golden/names_test.cpp"), x.reshape_as(other)),
        NAME("expand_as", ("golden/names_test.cpp"), x.expand_as(other)),
        NAME("type_as", ("golden/names_test.cpp"), x.type_as(other)),
        NAME("new_zeros", ("golden/names_test.cpp"), x.new_zeros({2, 3})),
        NAME("new_ones", ("golden/names_test.cpp"), x.new_ones({2})),
        NAME("new_full", ("golden/names_test.cpp"), x.new_full({2}, 7)),
        NAME("new_empty", ("golden/names_test.cpp"), x.new_empty({2}))}},
      {"meshgrid", 29, {NAME("meshgrid", ("meshgrid ij", "meshgrid xy"), meshgrid(tensors, "xy"))}},
      {"Rounding",
       28,
       {NAME("round", ("round"), x.round()), NAME("floor", ("floor"), floor(x)),
        NAME("ceil", ("ceil"), ceil(x)), NAME("trunc", ("trunc"), trunc(x)),
        NAME("sign", ("sign"), sign(x))}},
      {"prod",
       22,
       {NAME("prod", ("prod"), prod(x)),
        NAME("prod(dim)", ("prod 1", "prod 0 keep"), x.prod(1, true))}},
      {"clamp with one limit",
       16,
       {NAME("clamp(min=0)", ("clamp from"), x.clamp(0)),
        NAME("clamp_min", ("clamp from"), x.clamp_min(0)),
        NAME("clamp_max", ("clamp to"), clamp_max(x, 1))}},
      {"Unary operations in place",
       15,
       {NAME("exp_, log_, sqrt_, neg_, …", ("golden/names_test.cpp"), x.exp_().log1p_().neg_()),
        NAME("clamp_, pow_, uniform_, normal_", ("golden/names_test.cpp"),
             x.clamp_(0, 1).pow_(2).normal_(0, 1))}},
      {"Derivatives of derivatives",
       7,
       {NAME("autograd.grad(create_graph=True)",
             ("golden/second_order_test.cpp", "kernels/op_test.cpp"),
             autograd::grad({y}, {x}, {.create_graph = true})),
        NAME("backward(create_graph=True)", ("autograd/second_derivatives_test.cpp"),
             y.backward({}, true, true))}},
      {"cumprod, flip, roll",
       7,
       {NAME("cumprod", ("cumprod 0", "cumprod 1"), cumprod(x, 0)),
        NAME("flip", ("flip"), x.flip({0, -1})),
        NAME("roll", ("roll", "roll all"), roll(x, {1}, 0))}},
      {"Sampling",
       2,
       {NAME("multinomial(replacement=True)", ("core/random_integers_test.cpp"),
             multinomial(weights, 5, true))}},
  };
}

std::vector<Subject> training_names() {
  return {
      {"Pictures",
       89,
       {NAME("make_grid", ("nn/image_grid_test.cpp"), make_grid(x, {.nrow = 4})),
        NAME("save_image", ("nn/image_grid_test.cpp"),
             save_image(x, "x.png", {.nrow = 4, .normalize = true}))}},
      {"LBFGS; linear algebra",
       4,
       {NAME("optim.LBFGS", ("lbfgs"), lbfgs.step(closure)),
        NAME("linalg.norm", ("norm 2 []", "norm 1 [0]"), norm(x, 2, 0)),
        NAME("einsum", ("einsum bij,bkj->bki"), einsum("bij,bkj->bki", x, y))}},
      {"Optimizers' options",
       0,
       {NAME("Adam(amsgrad=True)", ("adam", "adam_step with amsgrad"),
             optim::AdamOptions{.lr = 1e-3, .amsgrad = true}),
        NAME("AdamW(amsgrad=True)", ("adamw"), optim::AdamWOptions{.amsgrad = true}),
        NAME("Adam(decoupled_weight_decay=True)", ("adam"),
             optim::AdamOptions{.weight_decay = 0.1, .decoupled_weight_decay = true}),
        NAME("SGD(maximize=True)", ("sgd"),
             optim::SGDOptions{.momentum = 0.9, .nesterov = true, .maximize = true}),
        NAME("RMSprop(maximize=True)", ("rmsprop"),
             optim::RMSpropOptions{.centered = true, .maximize = true}),
        NAME("Adagrad(maximize=True)", ("adagrad"), optim::AdagradOptions{.maximize = true}),
        NAME("Adadelta(maximize=True)", ("adadelta"), optim::AdadeltaOptions{.maximize = true})}},
      {"Training",
       0,
       {NAME("clip_grad_norm_", ("clip_grad_norm"), optim::clip_grad_norm_(net.parameters(), 1)),
        NAME("clip_grad_value_", ("clip_grad_value"), optim::clip_grad_value_(net.parameters(), 1)),
        NAME("AveragedModel, EMA", ("nn/weight_average_test.cpp"),
             average.update(net.state_dict())),
        NAME("lr_scheduler.StepLR", ("StepLR"),
             optim::LRScheduler(optimizer, optim::StepLR{.step_size = 30})),
        NAME("lr_scheduler.OneCycleLR", ("OneCycleLR"),
             optim::LRScheduler(optimizer, optim::OneCycleLR{.max_lr = 0.1, .total_steps = 9})),
        NAME("lr_scheduler.CyclicLR", ("CyclicLR"), optim::CyclicLR{}),
        NAME("lr_scheduler.LambdaLR", ("LambdaLR"), optim::LambdaLR{}),
        NAME("lr_scheduler.CosineAnnealingWarmRestarts", ("CosineAnnealingWarmRestarts"),
             optim::CosineAnnealingWarmRestarts{}),
        NAME("ReduceLROnPlateau, negative measures", ("plateau"), plateau.step(-1.5))}},
      {"Data",
       0,
       {NAME("RandomSampler(replacement=True)", ("data/drawing_samplers_test.cpp"),
             ReplacementSampler(100)),
        NAME("WeightedRandomSampler", ("data/drawing_samplers_test.cpp"),
             WeightedRandomSampler({1, 2, 3}, 9)),
        NAME("random_split", ("data/dataset_test.cpp"), random_split(samples, {80, 20})),
        NAME("Subset", ("data/dataset_test.cpp"), Subset(samples, {0, 2})),
        NAME("ConcatDataset", ("data/dataset_test.cpp"), ConcatDataset({samples, samples})),
        NAME("DataLoader(collate_fn=f)", ("data/dataset_test.cpp"),
             DataLoader(make_batch, sampler)),
        NAME("DataLoader(num_workers=2), in order", ("data/data_loader_test.cpp"),
             DataLoader(samples, sampler, {.batch_size = 8, .num_workers = 2}))}},
  };
}

// Without a dtype the row is a test of its own.
std::string dtypes_of(const Name& name) {
  std::set<DType> all;
  bool in_golden = false;
  for (const std::string& row : name.rows) {
    for (const test::OpSpec& spec : test::op_specs())
      if (spec.name == row) all.insert(spec.dtypes.begin(), spec.dtypes.end());
    in_golden = in_golden || row.find(".cpp") == std::string::npos;
  }
  if (in_golden) all.insert(DType::Float64);
  std::string text;
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16,
                            DType::Int64, DType::Int32, DType::UInt8})
    if (all.contains(dtype)) text += (text.empty() ? "" : ", ") + str(dtype);
  return text;
}

std::string page() {
  std::string text = R"(# Names that PyTorch's users know

Nine public collections of small programs (libtorch's and PyTorch's examples, GANs, vision transformers, networks for CIFAR,
minGPT, makemore, Horovod) use the names of this table, the number of programs beside each subject. Each form here is compiled,
and each row is there, by `tests/golden/names_table_test.cpp`, which has the table. A row is an operation's in `tests/kernels/op_specs*.cpp`,
whose kernels are compared in these dtypes with the reference kernels; or PyTorch's numbers in
`tests/golden/ops.json`, in float64; or a test. [nn/README.md](../nn/README.md) says what is absent, and what to do instead.

| PyTorch | programs | here | rows | dtypes |
| :--- | ---: | :--- | :--- | :--- |
)";
  for (const std::vector<Subject>& part : {network_names(), tensor_names(), training_names()})
    for (const auto& [title, programs, names] : part) {
      text += "| **" + title + "** | " + (programs ? std::to_string(programs) : "") + " | | | |\n";
      for (const Name& name : names) {
        std::string rows;
        for (const std::string& row : name.rows) rows += (rows.empty() ? "" : ", ") + row;
        text += "| " + std::string(name.torch) + " | | `" + name.here + "` | " + rows + " | " +
                dtypes_of(name) + " |\n";
      }
    }
  return text;
}

}  // namespace

TEST_CASE("each name of the table has a row, and docs/names.md is the table", "[quick]") {
  std::set<std::string> rows;
  for (const test::OpSpec& spec : test::op_specs()) rows.insert(spec.name);
  const nlohmann::json golden = test::load_golden("ops.json");
  for (const auto& row : golden["cases"]) rows.insert(row["op"].get<std::string>());
  const std::filesystem::path tests = std::filesystem::path(RINGGRAD_GOLDEN).parent_path();
  for (const std::vector<Subject>& part : {network_names(), tensor_names(), training_names()})
    for (const auto& [title, programs, names] : part)
      for (const Name& name : names) {
        CHECK(!name.rows.empty());
        for (const std::string& row : name.rows) {
          INFO(title << ", " << name.torch << ": " << row);
          const bool is_file = row.ends_with(".cpp");
          CHECK((is_file ? std::filesystem::exists(tests / row) : rows.contains(row)));
        }
      }
  const std::filesystem::path file = tests.parent_path() / "docs" / "names.md";
  const std::string text = page();
  if (std::getenv("RINGGRAD_WRITE_NAMES")) std::ofstream(file) << text;
  INFO("docs/names.md is not the table: RINGGRAD_WRITE_NAMES=1 with this test writes it");
  CHECK((text_of(file) == text));
}

}  // namespace ringgrad::test::names_table_test
