// presets.ts: well-known devices. Measured numbers of a machine are better where there are any.
import type { DeviceSpec } from './fleet-file.js'

/** A known device and where its numbers are from. */
export interface Preset extends DeviceSpec {
  /** Where its numbers are from. */
  readonly source: string
}

const [GB, T] = [1e9, 1e12]

/**
 * Devices by name. `bandwidth` is 85 % of the peak that the vendor states, which is what copies of large arrays reach; `flops` are
 * dense products without sparsity; `reserve` is what the system and contexts usually take.
 */
export const presets: Readonly<Record<string, Preset>> = {
  GB10: {
    ...{ backend: 'cuda', memory: 128 * GB, reserve: 10 * GB, bandwidth: 0.85 * 273 * GB, overhead: 1e-4 },
    flops: { f32: 31 * T, f16: 125 * T, bf16: 125 * T, f8_e4m3: 250 * T, i8: 250 * T, f4_e2m1: 500 * T },
    source: 'NVIDIA DGX Spark data sheet: 128 GB LPDDR5X at 273 GB/s, 1 PFLOP of FP4 with sparsity',
  },
  'RTX 5090': {
    ...{ backend: 'cuda', memory: 32 * GB, reserve: 1.5 * GB, bandwidth: 0.85 * 1792 * GB, overhead: 1e-4 },
    flops: {
      f32: 104.8 * T,
      f16: 209.5 * T,
      bf16: 209.5 * T,
      f8_e4m3: 419 * T,
      i8: 838 * T,
      f4_e2m1: 1676 * T,
    },
    source: 'NVIDIA RTX Blackwell GPU architecture, appendix: 32 GB GDDR7 at 1792 GB/s; f32 accumulation',
  },
  'RTX 4090': {
    ...{ backend: 'cuda', memory: 24 * GB, reserve: 1.5 * GB, bandwidth: 0.85 * 1008 * GB, overhead: 1e-4 },
    flops: { f32: 82.6 * T, f16: 165.2 * T, bf16: 165.2 * T, f8_e4m3: 330.3 * T, i8: 660.6 * T },
    source: 'NVIDIA Ada GPU architecture, appendix A: 24 GB GDDR6X at 1008 GB/s; f32 accumulation',
  },
  'RTX 3090': {
    ...{ backend: 'cuda', memory: 24 * GB, reserve: 1.5 * GB, bandwidth: 0.85 * 936 * GB, overhead: 1e-4 },
    flops: { f32: 35.6 * T, f16: 71 * T, bf16: 71 * T, i8: 284 * T },
    source: 'NVIDIA GA102 GPU architecture, table 2: 24 GB GDDR6X at 936 GB/s; f32 accumulation',
  },
  H100: {
    ...{ backend: 'cuda', memory: 80 * GB, reserve: 1.5 * GB, bandwidth: 0.85 * 3350 * GB, overhead: 1e-4 },
    flops: { f32: 67 * T, f16: 989 * T, bf16: 989 * T, f8_e4m3: 1979 * T, i8: 1979 * T },
    source: 'NVIDIA H100 data sheet, SXM: 80 GB HBM3 at 3.35 TB/s; half of the numbers with sparsity',
  },
  'Jetson AGX Orin': {
    ...{ backend: 'cuda', memory: 64 * GB, reserve: 6 * GB, bandwidth: 0.85 * 204.8 * GB, overhead: 2e-4 },
    flops: { f32: 5.3 * T, f16: 42.5 * T, i8: 85 * T },
    source: 'NVIDIA Jetson AGX Orin series technical brief: 64 GB LPDDR5 at 204.8 GB/s; dense',
  },
  'M3 Ultra': {
    ...{ backend: 'metal', memory: 256 * GB, reserve: 32 * GB, bandwidth: 0.85 * 819 * GB, overhead: 2e-4 },
    flops: { f32: 28.2 * T, f16: 28.2 * T, bf16: 28.2 * T },
    source:
      'Apple Mac Studio 2025 specifications: 80 GPU cores, 819 GB/s, 96 to 512 GB; 128 f32 units a core at 1.38 GHz, which Apple does not state',
  },
  'M4 Max': {
    ...{ backend: 'metal', memory: 128 * GB, reserve: 16 * GB, bandwidth: 0.85 * 546 * GB, overhead: 2e-4 },
    flops: { f32: 17.2 * T, f16: 17.2 * T, bf16: 17.2 * T },
    source:
      'Apple Mac Studio 2025 specifications: 40 GPU cores, 546 GB/s, up to 128 GB; 128 f32 units a core at 1.68 GHz, which Apple does not state',
  },
  CPU: {
    ...{ backend: 'cpu', memory: 32 * GB, reserve: 4 * GB, bandwidth: 0.6 * 89.6 * GB, overhead: 1e-4 },
    flops: { f32: 1 * T, f16: 1 * T, bf16: 1 * T, i8: 2 * T },
    source:
      'a desktop with 8 cores with AVX2 at 4 GHz (32 f32 operations a cycle) and two channels of DDR5-5600',
  },
}
