//! The examples at the end of each help.

pub(super) const DEMO: &str = "\
Examples:
  tiled demo
  tiled demo --memory 128MiB --threads 1
  tiled demo --picture photo.jpg --json";

pub(super) const PLAN: &str = "\
Examples:
  tiled plan --net vgg16 --input 3x20480x20480 --memory 2GiB
  tiled plan --net unet --input photo.jpg --output mask.png --memory 256MiB
  tiled plan --net light --input 3x100000x100000 --train --memory 1GiB --json
  tiled plan --net vgg16 --input 3x20480x20480 --train --loss sum --memory 8GiB --device cuda-sim:h200
  tiled plan --net unet --input 3x2700x5400 --train --tile 256x256 --hold recompute --svg plan.svg";

pub(super) const RUN: &str = "\
Examples:
  tiled run --net unet --weights unet.safetensors --input photo.jpg --output mask.png --memory 256MiB
  tiled run --net net.json --weights random:1 --input x.npy --output y.npy --tile 512x512 --hold recompute
  tiled run --net model.onnx --input photo.jpg --output mask.png
  tiled run --net two_inputs.json --weights w.safetensors --input a.npy --input b.npy --output y.npy";

pub(super) const GRAD: &str = "\
Examples:
  tiled grad --net light --weights w.safetensors --input x.npy --grad-output g.npy \\
      --grad-input gx.npy --grad-weights gw.safetensors --memory 128MiB
  tiled grad --net vgg2 --weights random:1 --input photo.jpg --grad-output ones --grad-input gx.npy";

pub(super) const TRAIN: &str = "\
Examples:
  tiled train --net unet --input photo.jpg --target relief.jpg --loss mse --steps 20 --lr 0.05 \\
      --momentum 0.9 --save unet.safetensors --prediction relief.png --loss-curve loss.svg --memory 512MiB
  tiled train --net unet --input photo.jpg --target relief.jpg --steps 5000 --log losses.jsonl --save unet.safetensors
  tiled train --net classes.json --input x.npy --target labels.npy --loss cross-entropy --optimizer adamw";

pub(super) const VERIFY: &str = "\
Examples:
  tiled verify
  tiled verify --cases 500 --seed 1 --json
  tiled verify --seed 1 --only 42
  tiled verify --device cuda --cases 300";

pub(super) const DEVICES: &str = "\
Examples:
  tiled devices
  tiled devices --json";

pub(super) const CUDA_BUILD: &str = "\
Examples:
  tiled cuda-build --arch sm_90 --out kernels.bundle
  TILED_CUDA_KERNELS=kernels.bundle tiled run --device cuda --net unet --weights unet.safetensors \\
      --input photo.jpg --output mask.png";

pub(super) const NET: &str = "\
Examples:
  tiled net
  tiled net unet > net.json";

pub(super) const CONVERT: &str = "\
Examples:
  tiled convert model.onnx --net net.json --weights w.safetensors";

pub(super) const BENCH: &str = "\
Examples:
  tiled bench
  tiled bench --filter light --runs 5 --json
  tiled bench --filter vgg2-1024 --memory 64MiB --threads 1";
