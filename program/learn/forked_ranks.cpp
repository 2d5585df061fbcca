#include "ringgrad/program/learn/forked_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/error.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/learn/grading.h"

namespace ringgrad::program {
namespace {

using Links = std::vector<std::vector<Link>>;

std::pair<FileDescriptor, FileDescriptor> both_ends(bool of_a_pipe) {
  int ends[2];
  const int made =
      of_a_pipe ? pipe2(ends, O_CLOEXEC) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
  if (made != 0)
    throw LimitError(std::string("learn: no connection between ranks: ") + std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

nlohmann::json answer_of(int rank, Links& links, const RankBody& body) {
  const int size = static_cast<int>(links.size());
  std::vector<Link> own = std::move(links[rank]);
  links.clear();  // other ranks' ends: a rank that dies must be the last to hold its own
  try {
    const auto deadline = Deadline::after(std::chrono::seconds(5));
    auto transport = std::make_unique<Transport>(rank, std::move(own), size, deadline);
    transport->complete(deadline);
    transport->set_timeout(std::chrono::seconds(2));
    return {{"answer", body(std::move(transport))}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"noticed", is_noticed(std::current_exception())}};
  } catch (...) {
    return {{"error", "something that is no std::exception"}};
  }
}

std::string read_all(int descriptor) {
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = read(descriptor, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  return text;
}

}  // namespace

std::vector<RankResult> run_forked_ranks(int size, const RankBody& rank) {
  Links links(size);
  for (auto& row : links) row.resize(size);
  const ChannelKind& shared_memory = *find_channel_kind("shm");
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < i; ++j) {
      Link& mine = links[i][j];
      Link& theirs = links[j][i];
      std::tie(mine.control, theirs.control) = both_ends(/*of_a_pipe=*/false);
      auto [end, other_end] = both_ends(/*of_a_pipe=*/false);
      mine.data = shared_memory.open(std::move(end));
      theirs.data = shared_memory.open(std::move(other_end));
    }

  struct Process {
    pid_t id;
    FileDescriptor says;
  };
  std::vector<Process> ranks;
  for (int r = 0; r < size; ++r) {
    auto [says, answer] = both_ends(/*of_a_pipe=*/true);
    const pid_t id = fork();
    if (id < 0)
      throw LimitError(std::string("learn: no process for a rank: ") + std::strerror(errno));
    if (id == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      write_all(answer.get(), answer_of(r, links, rank).dump());
      std::fflush(nullptr);  // the learner's output
      _exit(0);
    }
    ranks.push_back({id, std::move(says)});
  }
  links.clear();

  std::vector<RankResult> results;
  for (const Process& process : ranks) {
    const std::string text = read_all(process.says.get());
    int status = 0;
    waitpid(process.id, &status, 0);
    RankResult result;
    if (const auto said = json_if_whole(text); !said.is_discarded()) {
      result.answer = said.value("answer", nlohmann::json());
      result.error = said.value("error", "");
      result.noticed = said.value("noticed", false);
    } else {
      result.killed = describe_end(status);
      if (result.killed.empty()) result.killed = "ended without an answer";
    }
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<nlohmann::json> answers_of(const std::vector<RankResult>& results) {
  const auto failed_by_itself = [&](bool also_noticed) {
    for (size_t r = 0; r < results.size(); ++r) {
      const RankResult& of = results[r];
      if (!of.killed.empty()) throw Wrong(fmt::format("rank {} {}", r, of.killed));
      if (!of.error.empty() && (also_noticed || !of.noticed))
        throw Wrong(fmt::format("rank {} threw: {}", r, of.error));
    }
  };
  failed_by_itself(false);
  failed_by_itself(true);
  std::vector<nlohmann::json> answers;
  for (const RankResult& result : results) answers.push_back(result.answer);
  return answers;
}

}  // namespace ringgrad::program
