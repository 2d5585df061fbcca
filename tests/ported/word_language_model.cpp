// A language model of words, an LSTM, as PyTorch's example word_language_model trains it. Reads
// train.txt, valid.txt and test.txt of a folder, or writes them there first:
//   word_language_model [--data FOLDER] [--emsize N] [--nhid N] [--nlayers N] [--lr F] [--clip F]
//                       [--epochs N] [--batch-size N] [--bptt N] [--dropout F] [--tied 0|1]
//                       [--seed N] [--save FILE] [--perplexity F]
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <tuple>

#include <ringgrad/ringgrad.h>

#include "ringgrad/tests/ported/sentences.h"

using namespace ringgrad;

// ---- the words ----------------------------------------------------------------------------------
struct Dictionary {
  std::map<std::string, int64_t> word2idx;
  std::vector<std::string> idx2word;
  int64_t add_word(const std::string& word) {
    const auto [place, is_new] = word2idx.emplace(word, static_cast<int64_t>(idx2word.size()));
    if (is_new) idx2word.push_back(word);
    return place->second;
  }
  int64_t size() const { return static_cast<int64_t>(idx2word.size()); }
};

struct Corpus {
  Dictionary dictionary;
  Tensor train;
  Tensor valid;
  Tensor test;
  explicit Corpus(const std::filesystem::path& folder) {
    train = tokenize(folder / "train.txt");
    valid = tokenize(folder / "valid.txt");
    test = tokenize(folder / "test.txt");
  }
  // int64 [words], with <eos> behind each line.
  Tensor tokenize(const std::filesystem::path& path) {
    std::ifstream in(path);
    if (!in) throw DataError("no file " + path.string());
    std::vector<int64_t> ids;
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line + " <eos>");
      for (std::string word; words >> word;) ids.push_back(dictionary.add_word(word));
    }
    return tensor(ids);
  }
};

static void write_corpus(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::mt19937 random(1);
  const auto write = [&](const char* name, int lines) {
    std::ofstream out(folder / name);
    while (lines-- > 0) out << sentence(random) << "\n";
  };
  write("train.txt", 3000);
  write("valid.txt", 300);
  write("test.txt", 300);
}

// ---- the model ----------------------------------------------------------------------------------
struct RNNModel : nn::Module {
  nn::Dropout drop;
  nn::Embedding encoder;
  nn::LSTM rnn;
  nn::Linear decoder;
  int64_t ntoken;
  int64_t nhid;
  int64_t nlayers;
  RNNModel(int64_t ntoken, int64_t ninp, int64_t nhid, int64_t nlayers, double dropout,
           bool tie_weights)
      : drop(dropout),
        encoder(ntoken, ninp),
        rnn(ninp, nhid, {.num_layers = nlayers, .dropout = dropout}),
        decoder(nhid, ntoken),
        ntoken(ntoken),
        nhid(nhid),
        nlayers(nlayers) {
    register_module("drop", drop);
    register_module("encoder", encoder);
    register_module("rnn", rnn);
    register_module("decoder", decoder);
    if (tie_weights) {
      if (nhid != ninp) throw Error("tied: nhid must be equal to emsize");
      decoder.weight = encoder.weight;
    }
    init_weights();
  }
  void init_weights() {
    const double initrange = 0.1;
    nn::init::uniform_(encoder.weight, -initrange, initrange);
    nn::init::zeros_(decoder.bias);
    nn::init::uniform_(decoder.weight, -initrange, initrange);
  }
  std::tuple<Tensor, nn::LSTM::State> operator()(const Tensor& input,
                                                 const nn::LSTM::State& hidden) {
    const Tensor emb = drop(encoder(input));
    const auto [output, next] = rnn(emb, hidden);
    const Tensor decoded = decoder(drop(output)).view({-1, ntoken});
    return {log_softmax(decoded, 1), next};
  }
  nn::LSTM::State init_hidden(int64_t bsz) {
    const Tensor weight = parameters().front();
    return {weight.new_zeros({nlayers, bsz, nhid}), weight.new_zeros({nlayers, bsz, nhid})};
  }
};

// ---- batches ------------------------------------------------------------------------------------
// The text in bsz columns, each going on where the one before it ends.
static Tensor batchify(const Tensor& data, int64_t bsz) {
  const int64_t nbatch = data.size(0) / bsz;
  return data.narrow(0, 0, nbatch * bsz).view({bsz, -1}).t().contiguous();
}

// At most bptt words of each column from row i on, and the words behind them.
static std::tuple<Tensor, Tensor> get_batch(const Tensor& source, int64_t i, int64_t bptt) {
  const int64_t seq_len = std::min(bptt, source.size(0) - 1 - i);
  return {source.slice(0, i, i + seq_len), source.slice(0, i + 1, i + 1 + seq_len).reshape({-1})};
}

static nn::LSTM::State repackage_hidden(const nn::LSTM::State& hidden) {
  const auto& [h, c] = hidden;
  return {h.detach(), c.detach()};
}

static double evaluate(RNNModel& model, const Tensor& data_source, int64_t bptt) {
  model.eval();
  NoGradGuard no_grad;
  double total_loss = 0;
  nn::LSTM::State hidden = model.init_hidden(data_source.size(1));
  for (int64_t i = 0; i < data_source.size(0) - 1; i += bptt) {
    const auto [data, targets] = get_batch(data_source, i, bptt);
    const auto [output, next] = model(data, hidden);
    hidden = repackage_hidden(next);
    total_loss += static_cast<double>(data.size(0)) * nll_loss(output, targets).item<double>();
  }
  return total_loss / static_cast<double>(data_source.size(0) - 1);
}

static void train(RNNModel& model, const Tensor& train_data, int64_t bptt, double lr, double clip) {
  model.train();
  nn::LSTM::State hidden = model.init_hidden(train_data.size(1));
  for (int64_t i = 0; i < train_data.size(0) - 1; i += bptt) {
    const auto [data, targets] = get_batch(train_data, i, bptt);
    model.zero_grad();
    hidden = repackage_hidden(hidden);
    const auto [output, next] = model(data, hidden);
    hidden = next;
    const Tensor loss = nll_loss(output, targets);
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), clip);
    NoGradGuard no_grad;
    for (const Tensor& p : model.parameters()) p.add_(p.grad(), -lr);
  }
}

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--data", "sentences"},
                                                {"--emsize", "200"},
                                                {"--nhid", "200"},
                                                {"--nlayers", "2"},
                                                {"--lr", "20"},
                                                {"--clip", "0.25"},
                                                {"--epochs", "40"},
                                                {"--batch-size", "20"},
                                                {"--bptt", "35"},
                                                {"--dropout", "0.2"},
                                                {"--tied", "0"},
                                                {"--seed", "1111"},
                                                {"--save", "model.safetensors"},
                                                {"--perplexity", "1000"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name) { return std::stod(options.at(name)); };
  const auto count = [&](const char* name) {
    return static_cast<int64_t>(std::stoll(options.at(name)));
  };

  const std::filesystem::path folder = options["--data"];
  if (!std::filesystem::exists(folder / "train.txt")) write_corpus(folder);
  manual_seed(std::stoull(options["--seed"]));
  const Corpus corpus(folder);
  const int64_t eval_batch_size = 10;
  const Tensor train_data = batchify(corpus.train, count("--batch-size"));
  const Tensor val_data = batchify(corpus.valid, eval_batch_size);
  const Tensor test_data = batchify(corpus.test, eval_batch_size);
  RNNModel model(corpus.dictionary.size(), count("--emsize"), count("--nhid"), count("--nlayers"),
                 number("--dropout"), count("--tied") != 0);

  double lr = number("--lr");
  double best_val_loss = INFINITY;
  for (int64_t epoch = 1; epoch <= count("--epochs"); ++epoch) {
    train(model, train_data, count("--bptt"), lr, number("--clip"));
    const double val_loss = evaluate(model, val_data, count("--bptt"));
    std::printf("epoch %ld: lr %.4f, valid loss %.3f, perplexity %.3f\n", epoch, lr, val_loss,
                std::exp(val_loss));
    if (val_loss < best_val_loss) {
      nn::save_safetensors(options["--save"], model.state_dict());
      best_val_loss = val_loss;
    } else {
      lr /= 4;
    }
  }
  model.load_state_dict(nn::load_weights(options["--save"]).tensors);
  const double perplexity = std::exp(evaluate(model, test_data, count("--bptt")));
  std::printf("test: perplexity %.3f\n", perplexity);
  return perplexity <= number("--perplexity") ? 0 : 1;
}
