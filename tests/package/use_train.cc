// package: a foreign program that uses kpd::train, which runs libtorch.
#include <cmath>
#include <cstdio>
#include <vector>

#include <kpd/train/image_cnn.h>
#include <kpd/train/task.h>

int main() {
  kpd::train::ImageData data;
  for (kpd::train::ImageSet* set : {&data.train, &data.test}) {
    set->height = set->width = 28;
    set->pixels.assign(8 * 28 * 28, 0);
    for (size_t i = 0; i < set->pixels.size(); i += 3) set->pixels[i] = 255;
    set->labels = {0, 1, 0, 1, 0, 1, 0, 1};
  }
  const auto task = kpd::train::make_image_cnn("package-test", data);
  const auto worker = task->make_worker();
  task->initialise(1, worker->parameters());
  const std::vector<uint32_t> batch = {0, 1, 2, 3};
  kpd::CounterRng random(2);
  const double loss = worker->step(batch, 0.01f, random);
  std::printf("%zu parameters, loss %.3f\n", worker->parameters().size(), loss);
  return std::isfinite(loss) && loss > 0 ? 0 : 1;
}
