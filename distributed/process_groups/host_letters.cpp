// Sends and receives of ranks on CPUs: letters, which travel beside the collectives, moved by
// whoever waits for something; by a thread of the group where nobody does.
#include "ringgrad/distributed/collectives/messenger.h"
#include "ringgrad/distributed/process_groups/message_collectives.h"

namespace ringgrad {

struct HostProcessGroup::LetterJob final : Letter, PendingWork {
  explicit LetterJob(Collective c) : collective(std::move(c)) {
    outgoing = collective.input.defined();
    peer = collective.root;
    frame = frame_of(collective);
    payload = bytes_of(outgoing ? collective.input : collective.output);
  }
  void arrive(int sender) noexcept override {
    try {
      deliver(collective);
    } catch (...) {
      return leave(std::current_exception());
    }
    source_ = sender;
    leave(nullptr);
  }
  void fail(std::exception_ptr error) noexcept override { leave(error); }
  void leave(std::exception_ptr error) {
    collective = {};  // lets the tensors go
    end(error);
  }
  int source() const override { return source_; }

  Collective collective;
  int source_ = -1;
};

Work HostProcessGroup::exchange_letter(Collective collective) {
  const bool async = collective.options.async;
  auto letter = std::make_shared<LetterJob>(std::move(collective));
  letter->frame.job = options_.job;
  letter->timeout = timeout_of(letter->collective);
  letter->guarded =
      letter->outgoing &&
      needs_checksum(options_.checksums, transport_->streams().channel(letter->peer).kind());
  transport_->mailbox().post(letter);
  if (std::unique_lock lock(transport_mutex_, std::defer_lock); !async && lock.try_lock())
    move_letters(/*spinning=*/true, [&] { return letter->done(); });
  if (transport_->mailbox().under_way() > 0) {
    wake();
    transport_->ring();
  }
  if (!async) letter->wait();
  return Work(std::move(letter));
}

// REQUIRES: the caller holds the transport. Ends earlier when a collective wants it, or the group
// ends.
void HostProcessGroup::move_letters(bool spinning, const std::function<bool()>& done) {
  moving_letters_ = true;
  try {
    if (failure_) throw_failure(*failure_);
    transport_->set_spinning(spinning);
    transport_->move_letters_until([&] { return demand_ > 0 || stop_ || done(); });
  } catch (const std::exception&) {
    if (failure_)
      transport_->mailbox().fail_all(std::current_exception());
    else
      give_up(transport_->mailbox().describe_first());
  }
  moving_letters_ = false;
}

}  // namespace ringgrad
