#include "distributed/in_process_transport.h"

#include "core/check.h"
#include "distributed/mesh_transport.h"
#include "distributed/socket.h"

namespace ringgrad {

std::vector<std::unique_ptr<Transport>> in_process_transports(int size, std::string_view channel) {
  CHECK(size >= 1, "in_process_transports: ", size, " ranks, expected at least 1");
  CHECK(channel == "shm" || channel == "tcp", "in_process_transports: channel '", channel, "', expected shm or tcp");
  std::vector<std::vector<Link>> links(size);
  for (auto& row : links) row.resize(size);
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < i; ++j) {
      std::tie(links[i][j].control, links[j][i].control) = local_socket_pair();
      if (channel == "tcp") std::tie(links[i][j].data, links[j][i].data) = tcp_socket_pair();
    }
  }
  std::vector<std::unique_ptr<MeshTransport>> meshes;
  const auto deadline = Deadline::after(std::chrono::seconds(5));
  for (int r = 0; r < size; ++r)
    meshes.push_back(std::make_unique<MeshTransport>(r, std::move(links[r]), size, deadline));
  for (auto& mesh : meshes) mesh->complete(deadline);
  return {std::make_move_iterator(meshes.begin()), std::make_move_iterator(meshes.end())};
}

}  // namespace ringgrad
