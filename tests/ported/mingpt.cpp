// A small GPT (Radford et al. 2018) that learns to write characters, with the parts and names of
// Karpathy's minGPT and its project chargpt:
//   mingpt [STEPS] [LOSS WANTED] [SENTENCES] [FILE]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <ringgrad/ringgrad.h>

#include "ringgrad/tests/ported/sentences.h"

using namespace ringgrad;

struct Config {
  int64_t vocab_size;
  int64_t block_size;
  int64_t n_layer = 2;
  int64_t n_head = 2;
  int64_t n_embd = 48;
  double embd_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double attn_pdrop = 0.1;
};

// ---- the model ----------------------------------------------------------------------------------
struct NewGELU : nn::Module {
  Tensor forward(const Tensor& x) override {
    return 0.5 * x * (1.0 + tanh(std::sqrt(2.0 / 3.14159265358979) * (x + 0.044715 * pow(x, 3.0))));
  }
};

struct CausalSelfAttention : nn::Module {
  nn::Linear c_attn;
  nn::Linear c_proj;
  nn::Dropout resid_dropout;
  nn::Buffer bias;
  double attn_pdrop;
  int64_t n_head;
  int64_t n_embd;
  explicit CausalSelfAttention(const Config& config)
      : c_attn(config.n_embd, 3 * config.n_embd),
        c_proj(config.n_embd, config.n_embd),
        resid_dropout(config.resid_pdrop),
        attn_pdrop(config.attn_pdrop),
        n_head(config.n_head),
        n_embd(config.n_embd) {
    register_module("c_attn", c_attn);
    register_module("c_proj", c_proj);
    register_module("resid_dropout", resid_dropout);
    const int64_t size = config.block_size;
    bias = register_buffer("bias", tril(ones({size, size})).view({1, 1, size, size}));
  }
  Tensor forward(const Tensor& x) override {
    const int64_t B = x.size(0);
    const int64_t T = x.size(1);
    const int64_t C = x.size(2);
    const std::vector<Tensor> parts = c_attn(x).split(n_embd, 2);
    const auto heads = [&](const Tensor& part) {
      return part.view({B, T, n_head, C / n_head}).transpose(1, 2);
    };
    const Tensor q = heads(parts[0]);
    const Tensor k = heads(parts[1]);
    const Tensor v = heads(parts[2]);
    Tensor y = scaled_dot_product_attention(q, k, v, {}, is_training() ? attn_pdrop : 0, true);
    y = y.transpose(1, 2).contiguous().view({B, T, C});
    return resid_dropout(c_proj(y));
  }
};

struct Block : nn::Module {
  nn::LayerNorm ln_1;
  CausalSelfAttention attn;
  nn::LayerNorm ln_2;
  nn::ModuleDict mlp;
  explicit Block(const Config& config)
      : ln_1({config.n_embd}), attn(config), ln_2({config.n_embd}) {
    mlp.insert("c_fc", nn::Linear(config.n_embd, 4 * config.n_embd));
    mlp.insert("c_proj", nn::Linear(4 * config.n_embd, config.n_embd));
    mlp.insert("act", NewGELU());
    mlp.insert("dropout", nn::Dropout(config.resid_pdrop));
    register_module("ln_1", ln_1);
    register_module("attn", attn);
    register_module("ln_2", ln_2);
    register_module("mlp", mlp);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attn(ln_1(x));
    return y + mlp["dropout"](mlp["c_proj"](mlp["act"](mlp["c_fc"](ln_2(y)))));
  }
};

struct GPT : nn::Module {
  int64_t block_size;
  nn::ModuleDict transformer;
  nn::Linear lm_head;
  explicit GPT(const Config& config)
      : block_size(config.block_size), lm_head(config.n_embd, config.vocab_size, {.bias = false}) {
    nn::ModuleList h;
    for (int64_t i = 0; i < config.n_layer; ++i) h.push_back(Block(config));
    transformer.insert("wte", nn::Embedding(config.vocab_size, config.n_embd));
    transformer.insert("wpe", nn::Embedding(config.block_size, config.n_embd));
    transformer.insert("drop", nn::Dropout(config.embd_pdrop));
    transformer.insert("h", std::move(h));
    transformer.insert("ln_f", nn::LayerNorm({config.n_embd}));
    register_module("transformer", transformer);
    register_module("lm_head", lm_head);
    apply(init_weights);
    for (const auto& [pn, p] : named_parameters())
      if (pn.ends_with("c_proj.weight"))
        nn::init::normal_(p, 0.0, 0.02 / std::sqrt(2 * config.n_layer));
    std::printf("number of parameters: %ld\n", transformer.num_parameters());
  }
  static void init_weights(nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) {
      nn::init::normal_(linear->weight, 0.0, 0.02);
      if (linear->bias.defined()) nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
      nn::init::normal_(embedding->weight, 0.0, 0.02);
    } else if (auto* norm = dynamic_cast<nn::LayerNorm*>(&module)) {
      nn::init::zeros_(norm->bias);
      nn::init::ones_(norm->weight);
    }
  }

  // The weights of linear layers decay, and nothing else.
  std::vector<optim::ParamGroup<optim::AdamWOptions>> groups(double lr, double weight_decay) {
    std::set<std::string> decay;
    std::set<std::string> no_decay;
    for (const auto& [mn, m] : named_modules()) {
      for (const auto& [pn, p] : m->named_parameters(/*recurse=*/false)) {
        const std::string fpn = mn.empty() ? pn : mn + "." + pn;
        if (pn == "weight" && dynamic_cast<nn::Linear*>(m) != nullptr)
          decay.insert(fpn);
        else
          no_decay.insert(fpn);
      }
    }
    nn::NamedTensors decayed;
    nn::NamedTensors others;
    for (const auto& [pn, p] : named_parameters()) {
      if (decay.contains(pn) == no_decay.contains(pn))
        throw Error(pn + " is in no set, or in both");
      (decay.contains(pn) ? decayed : others).emplace_back(pn, p);
    }
    const std::pair<double, double> betas = {0.9, 0.95};
    return {{decayed, {.lr = lr, .betas = betas, .weight_decay = weight_decay}},
            {others, {.lr = lr, .betas = betas, .weight_decay = 0}}};
  }

  Tensor logits(const Tensor& idx) {
    const int64_t t = idx.size(1);
    if (t > block_size) throw Error("cannot forward a longer sequence than block_size");
    const Tensor pos = arange(t).unsqueeze(0);
    Tensor x = transformer["drop"](transformer["wte"](idx) + transformer["wpe"](pos));
    for (const auto& block : static_cast<nn::ModuleList&>(transformer["h"])) x = (*block)(x);
    return lm_head(transformer["ln_f"](x));
  }
  std::tuple<Tensor, Tensor> operator()(const Tensor& idx, const Tensor& targets = {}) {
    const Tensor all = logits(idx);
    Tensor loss;
    if (targets.defined())
      loss = cross_entropy(all.view({-1, all.size(-1)}), targets.view({-1}), {.ignore_index = -1});
    return {all, loss};
  }
  Tensor generate(Tensor idx, int64_t max_new_tokens, double temperature = 1,
                  bool do_sample = false, int64_t top_k = 0) {
    NoGradGuard no_grad;
    for (int64_t i = 0; i < max_new_tokens; ++i) {
      const Tensor idx_cond = idx.size(1) <= block_size ? idx : idx.slice(1, -block_size);
      Tensor last = std::get<0>((*this)(idx_cond)).select(1, -1) / temperature;
      if (top_k > 0) {
        const Tensor v = last.topk(top_k).values;
        last = last.masked_fill(last < v.slice(1, -1), -INFINITY);
      }
      const Tensor probs = softmax(last, -1);
      const Tensor idx_next = do_sample ? multinomial(probs, 1) : probs.topk(1).indices;
      idx = cat({idx, idx_next}, 1);
    }
    return idx;
  }
};

// ---- the data -----------------------------------------------------------------------------------
// block_size characters from anywhere, and those behind each of them.
class CharDataset : public Dataset {
 public:
  CharDataset(const std::string& data, const std::string& chars, int64_t block_size)
      : block_size_(block_size) {
    std::vector<int64_t> ids;
    for (const char c : data) ids.push_back(static_cast<int64_t>(chars.find(c)));
    ids_ = tensor(ids);
  }
  Example get(int64_t i) const override {
    return {ids_.slice(0, i, i + block_size_), ids_.slice(0, i + 1, i + 1 + block_size_)};
  }
  int64_t size() const override { return ids_.size(0) - block_size_; }

 private:
  int64_t block_size_;
  Tensor ids_;
};

static std::string text_of(int sentences, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  while (sentences-- > 0) text += sentence(random) + "\n";
  return text;
}

static double evaluate(GPT& model, DataLoader& loader) {
  NoGradGuard no_grad;
  model.eval();
  double sum = 0;
  for (const Batch& batch : loader)
    sum += std::get<1>(model(batch.data, batch.target)).item<double>();
  return sum / static_cast<double>(loader.size());
}

int main(int argc, char** argv) {
  const int64_t max_iters = argc > 1 ? std::atoi(argv[1]) : 2000;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 100;
  const int sentences = argc > 3 ? std::atoi(argv[3]) : 3000;
  const std::string file = argc > 4 ? argv[4] : "mingpt.safetensors";

  manual_seed(3407);
  const std::string text = text_of(sentences, 1);
  const std::set<char> all(text.begin(), text.end());
  const std::string chars(all.begin(), all.end());
  const Config config = {.vocab_size = static_cast<int64_t>(chars.size()), .block_size = 48};
  const auto train_dataset = std::make_shared<CharDataset>(text, chars, config.block_size);
  const auto test_dataset =
      std::make_shared<CharDataset>(text_of(sentences / 10, 2), chars, config.block_size);
  GPT model(config);
  optim::AdamW optimizer(model.groups(3e-3, 0.1));

  DataLoader train_loader(
      train_dataset, std::make_shared<ReplacementSampler>(train_dataset->size(), 16 * max_iters),
      {.batch_size = 16});
  DataLoader test_loader(test_dataset,
                         std::make_shared<ReplacementSampler>(test_dataset->size(), 16 * 20),
                         {.batch_size = 16});
  model.train();
  for (int64_t iter = 0; const Batch& batch : train_loader) {
    const auto [logits, loss] = model(batch.data, batch.target);
    model.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    if (iter++ % 100 == 0) std::printf("iter %ld: loss %.4f\n", iter - 1, loss.item<double>());
  }
  const double loss = evaluate(model, test_loader);
  std::printf("test: loss %.4f\n", loss);

  nn::save_safetensors(file, model.state_dict());
  const std::vector<int64_t> begin = {static_cast<int64_t>(chars.find('\n'))};
  const Tensor context = tensor(begin, {1, 1});
  for (const int64_t c : to_vector<int64_t>(model.generate(context, 100, 1.0, true, 10)))
    std::putchar(chars[static_cast<size_t>(c)]);
  std::printf("\n");
  return loss <= wanted ? 0 : 1;
}
