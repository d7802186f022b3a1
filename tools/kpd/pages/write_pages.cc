// tools: kpd_pages FOLDER writes kpd.1, kpd-COMMAND.1, kpd.bash and _kpd there (pages.h). It is run by the build, not
// installed.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "kpd/base/error.h"
#include "pages.h"

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) kpd::fail(kpd::ErrorCode::kIo, path.string(), ": cannot be written");
}

void write_all(const std::filesystem::path& folder) {
  using namespace kpd::pages;
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {  // pages of commands that are gone
    if (entry.path().extension() == ".1") std::filesystem::remove(entry.path());
  }
  const std::vector<Page> pages = all_pages();
  for (const Page& page : pages) write(folder / ("kpd-" + page.name + ".1"), man_page(page));
  write(folder / "kpd.bash", bash_completion(pages));
  write(folder / "_kpd", zsh_completion(pages));
  write(folder / "kpd.1", man_page(pages));  // last: the build knows by it that all are there
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kpd_pages FOLDER\n");
    return 2;
  }
  try {
    write_all(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kpd_pages: %s\n", e.what());
    return 1;
  }
  return 0;
}
