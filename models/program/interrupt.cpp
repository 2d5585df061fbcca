#include "models/program/interrupt.h"

#include <csignal>
#include <initializer_list>

#include <unistd.h>

namespace ringgrad::program {
namespace {

volatile std::sig_atomic_t signal_seen = 0;

void on_signal(int signal) {
  if (signal_seen) _exit(128 + signal);
  signal_seen = signal;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
}

int interrupted() { return signal_seen; }

}  // namespace ringgrad::program
