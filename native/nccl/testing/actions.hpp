#pragma once

#include <string>
#include <vector>

#include "host.hpp"

/// What a program with collectives does, and what a broken one does.
class Program {
 public:
  Program(int version, const char* library);

  /// One of the words of nccl_app.cpp, with its arguments. False: there is no such action.
  bool act(const std::string& action, long first, long second);
  /// JSON of what was done.
  void report() const;

 private:
  void init(long count);
  void train(long rounds, long channels);
  void calls(long rounds);
  void replay();
  fake::Communicator& of_hash(std::uint64_t hash);
  void drain();
  void pipeline(long microseconds);
  void ahead(long moves);
  void garbage(long calls);
  void foreign();
  void late();
  void unstopped(long count);
  void aborted();
  void aged();
  void hang(long channels);
  void fork_and_call();
  void threads(long milliseconds);
  void bench(long batches);
  void dump() const;

  fake::Host host_;
  std::vector<fake::Communicator> communicators_;
  std::vector<fake::NetworkOperation> queue_;
  fake::Slow slow_;
  int page_ = -1;
  long collectives_ = 0;
  std::string extra_;
};
