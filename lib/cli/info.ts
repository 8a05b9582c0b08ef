import type { Command } from 'commander'
import { getConfigEntries } from '../core/config.js'
import { packageVersion } from '../core/version.js'
import type { CpuInfo } from '../hardware/cpu.js'
import type { GpuInfo } from '../hardware/gpu.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import { loadAddon } from '../native.js'
import { withExamples } from './command.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import { printTable } from './table.js'

/** Variables that are read where they are needed, outside of the configuration. */
const otherVariables = ['DGX_SPARK_CUBLASLT', 'DGX_SPARK_PREBUILD']

/** `dgx-spark info`: the machine, its GPUs, the configuration and where each value came from. */
export function addInfo(command: Command): void {
  command.option('--json', 'print one JSON document').action(async (options: { json?: boolean }) => {
    const hardware = await HardwareInfo.detect()
    const loaded = loadAddon()
    const addon = loaded.addon
      ? { path: loaded.path, kernelFamilies: loaded.addon.kernelFamilies(), cpuIsa: loaded.addon.cpuIsa() }
      : { reason: loaded.reason }
    const about = {
      version: packageVersion(),
      node: process.version,
      addon,
      configuration: getConfigEntries(),
    }
    if (options.json) printJson({ ...about, hardware })
    else {
      report(
        hardware,
        loaded.addon ? loaded.path : `not loaded: ${loaded.reason}`,
        loaded.addon?.cpuIsa() ?? 'none',
      )
    }
  })
  withExamples(command, 'dgx-spark info', 'dgx-spark info --json')
}

function report(hardware: HardwareInfo, addon: string, cpuIsa: string): void {
  const { platform, cpu, memory, backend } = hardware
  const heading = (text: string): void => {
    print()
    print(styled('bold', text))
  }
  print(styled('bold', `dgx-spark ${packageVersion()}, Node.js ${process.version}`))
  heading('Machine')
  printPairs([
    ['DGX Spark', hardware.isDgxSpark ? 'yes' : 'no'],
    [
      'maker, product',
      [platform.vendor, platform.oemModel ?? platform.product].filter(Boolean).join(', ') || 'unknown',
    ],
    ['system', `${platform.os} ${platform.kernel} ${platform.arch}`],
    ...(platform.dgxOsVersion ? ([['DGX OS', platform.dgxOsVersion]] as const) : []),
    ['CPU', describeCpu(cpu)],
    ['memory', `${formatBytes(memory.total)}, ${formatBytes(memory.available)} available`],
    ['addon', addon],
    ['CPU kernels', cpuIsa],
    ['backend', `${backend.name}: ${backend.reason}`],
    ['precision', `${hardware.recommendedPrecision} is recommended`],
  ])
  heading('GPUs')
  if (hardware.gpus.length === 0) print('  none')
  for (const gpu of hardware.gpus) reportGpu(gpu, gpu === hardware.bestGpu)
  heading('Configuration')
  const entries = getConfigEntries().map(({ variable, value, source }) => [
    variable,
    String(value ?? 'automatic'),
    source,
  ])
  const others = otherVariables.map(name => [
    name,
    process.env[name] ?? 'automatic',
    name in process.env ? name : 'default',
  ])
  printTable(['variable', 'value', 'from'], [...entries, ...others])
}

function describeCpu({ model, cores, quota, threads }: CpuInfo): string {
  const all = `${model ?? 'unknown'}, ${cores} ${cores === 1 ? 'core' : 'cores'}`
  if (quota === null) return all
  return `${all}, of which a quota allows ${Number(quota.toFixed(2))}: ${threads} ${threads === 1 ? 'thread' : 'threads'}`
}

function reportGpu(gpu: GpuInfo, best: boolean): void {
  const { memory, precision } = gpu
  print(`  ${gpu.index}: `, styled('bold', gpu.name), best ? ' (best)' : '')
  const details: [string, string | null][] = [
    ['problem', gpu.problem],
    ['support', gpu.supportClass],
    ['uuid', gpu.uuid],
    [
      'pci',
      gpu.pci && `${gpu.pci.vendorId}:${gpu.pci.deviceId} at ${gpu.pci.address ?? 'an unknown address'}`,
    ],
    ['architecture', [gpu.architecture, gpu.computeCapability].filter(Boolean).join(' ') || null],
    ['multiprocessors', gpu.smCount === null ? null : String(gpu.smCount)],
    ['driver', [gpu.driver, gpu.cudaVersion && `CUDA ${gpu.cudaVersion}`].filter(Boolean).join(', ') || null],
    [
      'memory',
      `${formatBytes(memory.total)}, ${formatBytes(memory.free)} free${gpu.integrated ? ', shared with the CPU' : ''}`,
    ],
    [
      'precisions',
      Object.entries(precision)
        .map(([name, support]) => `${name} ${support}`)
        .join(', '),
    ],
  ]
  printPairs(details.flatMap(([name, value]) => (value ? [[`  ${name}`, value] as const] : [])))
}
