#include "ringgrad/distributed/rendezvous/connect.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/os/shared_memory.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/rendezvous/handshake.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {
namespace {

// The interval at which a waiting rank checks that the others live.
constexpr std::chrono::milliseconds kLookAgain{50};
// The same for a rank that is connected with all others, and waits for their word.
constexpr std::chrono::milliseconds kListenAgain{1};
// The time for which a rank dials one peer before it tries the next: kFirstTry at first, twice as
// long in each further round, up to kLongestTry.
constexpr std::chrono::milliseconds kFirstTry{250};
constexpr std::chrono::milliseconds kLongestTry{2000};
// A rank that dials others is the first to say which ones it does not reach. One that only waits to
// be dialled is the second; one that waits for the others to be connected is the last.
constexpr std::chrono::seconds kGrace{1};

constexpr char kTable = '\0';  // begins a rank's table, behind its address

// The ways to reach a rank. Its fields travel as lines, so none of them contains a line end.
struct PeerAddress {
  uint64_t machine = 0;
  uint64_t job = 0;  // a random number; all ranks use that of rank 0
  // The secret of a job that has none: its ranks have met as processes of one user.
  std::string secret;
  std::map<std::string, std::string> offers = {};  // addresses, by transport

  std::string print() const {
    std::string text = str(machine, '\n', job, '\n', secret, '\n');
    for (const auto& [name, address] : offers) text += str(name, ' ', address, '\n');
    return text;
  }
  static PeerAddress parse(const std::string& text, int rank) {
    PeerAddress result;
    TextInput in(text);
    in >> result.machine >> result.job >> result.secret;
    CHECK_AS(DistributedError, !in.fail(), "rendezvous: rank ", rank, " sent a damaged address");
    std::string name;
    while (in >> name) {
      in.ignore();
      std::getline(in, result.offers[name]);
    }
    return result;
  }
};

class Connector {
 public:
  Connector(int rank, int size, const ConnectOptions& options)
      : rank_(rank), size_(size), options_(options), links_(size), newest_(size), is_ready_(size) {}

  Connected run(const Exchange& exchange) {
    PeerAddress own;
    own.machine = machine_id();
    own.secret = new_secret();
    own.job = parse_number<uint64_t>(new_secret().substr(0, 15), 16).value();
    std::vector<FileDescriptor> listeners;
    for (const ChannelKind* kind : channel_kinds()) {
      if (size_ == 1 || !is_wanted(*kind)) continue;
      ChannelOffer offer = kind->offer(options_.host);
      own.offers[kind->name] = std::move(offer.address);
      listeners.push_back(std::move(offer.listener));
    }
    const std::string table = rank_table ? rank_table->own(options_) : "";
    read(exchange(own.print() + kTable + table));
    secret_ = options_.secret.empty() ? addresses_[0].secret : options_.secret;
    PeerListener listener(std::move(listeners), secret_, size_);
    deadline_ = Deadline::after(options_.timeout);

    last_ = Deadline::after(options_.timeout + kGrace);
    try {
      connect_pairs(listener);
      // Ranks themselves give up earlier, and say which rank they miss.
      for (const Link& link : links_) give_up_after(link.control.socket(), 2 * options_.timeout);
    } catch (...) {
      const Failure failure = failure_of(std::current_exception());
      for (Link& link : links_)
        link.control.send({ControlKind::Failed, failure.kind, failure.text});
      throw;
    }
    auto transport = std::make_unique<Transport>(rank_, std::move(links_), ranks_here(), last_);
    transport->complete(last_);
    return {std::move(transport), addresses_[0].job, machines()};
  }

 private:
  void read(const std::vector<std::string>& texts) {
    std::vector<std::string> tables;
    for (int r = 0; r < size_; ++r) {
      const size_t end = std::min(texts[r].find(kTable), texts[r].size());
      addresses_.push_back(PeerAddress::parse(texts[r].substr(0, end), r));
      tables.push_back(texts[r].substr(std::min(end + 1, texts[r].size())));
    }
    if (rank_table) rank_table->agree(tables, rank_);
    for (int r = 0; r < size_; ++r) {
      kinds_.push_back(r == rank_ ? nullptr : kind_between(rank_, r));
      CHECK_AS(DistributedError, r == rank_ || kinds_[r], "transport: ", options_.transport,
               " was asked for, but ranks ", rank_, " and ", r, " do not share a machine");
    }
  }

  bool is_wanted(const ChannelKind& kind) const {
    return options_.transport == "auto" ? kind.preference > 0 : options_.transport == kind.name;
  }

  // Returns the same kind for both ranks of a pair; nullptr if there is none.
  const ChannelKind* kind_between(int a, int b) const {
    const bool one_machine = addresses_[a].machine == addresses_[b].machine;
    for (const ChannelKind* kind : channel_kinds())
      if (addresses_[a].offers.contains(kind->name) && addresses_[b].offers.contains(kind->name) &&
          (one_machine || kind->reach == Reach::Network))
        return kind;
    return nullptr;
  }

  std::vector<int> machines() const {
    std::vector<int> machines;
    for (int r = 0; r < size_; ++r) {
      int first = 0;
      const auto share_memory = [&] {
        const ChannelKind* kind = kind_between(first, r);
        return kind && kind->reach == Reach::Memory;
      };
      while (first < r && !share_memory()) ++first;
      machines.push_back(first);
    }
    return machines;
  }

  int ranks_here() const {
    return static_cast<int>(
        std::ranges::count(addresses_, addresses_[rank_].machine, &PeerAddress::machine));
  }

  bool is_connected(int peer) const {
    return peer == rank_ || (links_[peer].control.socket() && links_[peer].data);
  }
  bool misses(int first, int end) const {
    while (first < end && is_connected(first)) ++first;
    return first < end;
  }

  // Higher ranks dial lower ones. Rank 0 only admits, so there is always one rank that does not
  // wait for another. A rank dials an unreachable one again and again, and keeps no other rank from
  // connecting meanwhile. None goes on before all are connected, so that a rank that misses another
  // one can say so to all.
  void connect_pairs(PeerListener& listener) {
    const auto end = Deadline::after(options_.timeout + 2 * kGrace);
    for (auto patience = kFirstTry; !are_all_connected();
         patience = std::min(2 * patience, kLongestTry)) {
      if (refusal_ && explained_by_.passed()) throw_failure(*refusal_);
      if (deadline_.passed() && misses(0, rank_)) throw TimeoutError(whom_it_does_not_reach());
      const bool waits = misses(0, size_);
      CHECK_AS(TimeoutError, !(waits ? last_ : end).passed(),
               "transport: ", names_of_missing(waits), " did not connect to ",
               waits ? str("rank ", rank_) : "all others", " in time", listener.strangers());
      for (int peer = 0; peer < rank_; ++peer)
        if (!is_connected(peer)) go_to(peer, patience);
      const auto served = Deadline::after(patience);  // for as long as it has dialled
      do {
        if (auto admitted = listener.next(Deadline::after(waits ? kLookAgain : kListenAgain)))
          take(std::move(*admitted));
        check_alive();
        if (options_.check_wanted) options_.check_wanted();
      } while (misses(rank_ + 1, size_) && !served.passed());
    }
  }

  // Says so to all ranks when this one is. Returns true once all have said so.
  bool are_all_connected() {
    if (misses(0, size_)) return false;
    if (!is_ready_[rank_])
      for (Link& link : links_) link.control.send({ControlKind::Connected});
    is_ready_[rank_] = true;
    return std::ranges::count(is_ready_, false) == 0;
  }

  // A rank that is stopped lets others connect, and says nothing.
  void go_to(int peer, std::chrono::milliseconds patience) {
    const std::string name = str("rank ", peer);
    Link& link = links_[peer];
    const auto dial = [&](ConnectionPurpose purpose) {
      FileDescriptor socket = kinds_[peer]->dial(addresses_[peer].offers[kinds_[peer]->name],
                                                 deadline_.but_at_most(patience));
      try {
        client_handshake(socket, {purpose, rank_, size_, str(++attempts_)}, secret_,
                         deadline_.but_at_most(patience), name.c_str());
      } catch (const TimeoutError&) {
        abandon(socket);
        throw;
      }
      return socket;
    };
    try {
      if (!link.control.socket()) link.control = dial(ConnectionPurpose::Control);
      link.data = kinds_[peer]->open(dial(ConnectionPurpose::Data));
    } catch (const DistributedError& error) {
      obstacles_[peer] = error.what();
      if (dynamic_cast<const TimeoutError*>(&error) ||
          dynamic_cast<const ConnectionLostError*>(&error) || refusal_)
        return;
      refusal_ = failure_of(std::current_exception());
      refusal_->text =
          str("transport: rank ", rank_, " cannot connect to ", name, ": ", error.what());
      explained_by_ = Deadline::after(kFirstTry);
    }
  }

  // A rank that comes again has lost its earlier connection, or has abandoned it. That one may
  // still arrive later.
  void take(AdmittedPeer admitted) {
    const auto& [purpose, peer, size, value] = admitted.claims;
    const bool known =
        size == size_ && peer > rank_ && peer < size_ && purpose != ConnectionPurpose::Rendezvous;
    CHECK_AS(DistributedError, known, "transport: rank ", peer, " of ", size, " connected to rank ",
             rank_, " of ", size_, ", which does not expect it");
    const int attempt = parse_number<int>(value).value_or(0);
    if (attempt < newest_[peer]) return;
    newest_[peer] = attempt;
    if (purpose == ConnectionPurpose::Control)
      links_[peer].control = std::move(admitted.socket);
    else
      links_[peer].data = kinds_[peer]->open(std::move(admitted.socket));
  }

  // Hears which ranks are connected with all others, and why one gives up. Until this rank has said
  // that it is connected, no other one can leave. Later messages are for the transport.
  void check_alive() {
    for (int peer = 0; peer < size_; ++peer) {
      ControlLink& control = links_[peer].control;
      if (!control.socket() || (is_ready_[peer] && is_ready_[rank_])) continue;
      pollfd end{control.socket().get(), POLLRDHUP, 0};
      if (poll(&end, 1, 0) > 0 && !links_[peer].data && (end.revents & POLLERR) != 0) {
        control = {};  // it was lost: the rank comes again
        continue;
      }
      const auto said = control.receive();
      if (said && said->kind == ControlKind::Failed) throw_failure({said->failure, said->text});
      CHECK_AS(DistributedError, said || !control.closed(), "transport: rank ", peer,
               " died: its connection to rank ", rank_, " was closed while ranks connected");
      if (said) is_ready_[peer] = true;
    }
  }

  std::string whom_it_does_not_reach() {
    std::string text;
    for (int peer = 0; peer < rank_; ++peer) {
      if (is_connected(peer)) continue;
      text += text.empty() ? "transport: " : "; ";
      text += str("rank ", peer, " and rank ", rank_, " do not reach each other");
      if (peer > 0 && is_connected(0)) text += "; both reach rank 0";
      text += str(" (", obstacles_[peer], ")");
    }
    return text;
  }

  // The ranks that this one misses, or those that miss others.
  std::string names_of_missing(bool own) const {
    std::string names;
    for (int peer = 0; peer < size_; ++peer)
      if (own ? !is_connected(peer) : !is_ready_[peer])
        names += str(names.empty() ? "rank " : ", rank ", peer);
    return names;
  }

  const int rank_;
  const int size_;
  const ConnectOptions& options_;
  std::string secret_;
  Deadline deadline_;  // for connecting, after the rendezvous
  Deadline last_;
  std::map<int, std::string> obstacles_;  // by rank: why it was not reached
  // A rank that has given up listens no more. The others may have heard why, so they get a moment.
  std::optional<Failure> refusal_;
  Deadline explained_by_;
  std::vector<Link> links_;
  int attempts_ = 0;            // of this rank, to connect with others
  std::vector<int> newest_;     // by rank: the last of its attempts that was admitted
  std::vector<bool> is_ready_;  // by rank: it has said that it is connected with all others
  std::vector<PeerAddress> addresses_;
  std::vector<const ChannelKind*> kinds_;  // by rank: how this one is connected with it
};

}  // namespace

Connected connect_ranks(int rank, int size, const ConnectOptions& options,
                        const Exchange& exchange) {
  return Connector(rank, size, options).run(exchange);
}

}  // namespace ringgrad
