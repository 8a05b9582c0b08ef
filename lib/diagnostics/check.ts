// check.ts: diagnosis of an installation: a check with a remedy for everything that this library can use.
import { accessSync, constants } from 'node:fs'
import path from 'node:path'
import { getConfig, readConfig } from '../core/config.js'
import { cudaDevice } from '../hardware/cuda-device.js'
import type { GpuInfo } from '../hardware/gpu.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import { oomKills } from '../hardware/oom-kills.js'
import { listFolder, systemRoot } from '../hardware/system-files.js'
import { findFp4Ways } from '../kernels/fp4-ways.js'
import { openKernels } from '../kernels/open.js'
import { choosePrecision } from '../model/precision.js'
import { type CublasLtReport, type CudaReport, loadAddon, type NvmlReport } from '../native.js'

/** One thing that was looked for. */
export interface CheckItem {
  /** What was looked for. */
  readonly name: string
  /** `note`: missing, but nothing needs it here. `problem`: something should work and does not. */
  readonly status: 'ok' | 'note' | 'problem'
  /** What was found, in words. */
  readonly found: string
  /** The next command to run, or what to do, when something is missing. */
  readonly next?: string
}

/** What the checks look at. */
interface Facts {
  readonly hardware: HardwareInfo
  /** How long detection took, in milliseconds; the CUDA driver starts in it, once in a process. */
  readonly detection: number
  readonly nvml: NvmlReport | null
  readonly cuda: CudaReport | null
  readonly cublasLt: CublasLtReport | null
  readonly nvidia: readonly GpuInfo[]
}

/** Milliseconds in which a GPU should be ready in a new process, detection included. */
const startBudget = 3000

const driverPackage = 'sudo apt-get install nvidia-driver-580-open, then restart'
const sparkUpdate =
  'sudo apt-get update && sudo apt-get dist-upgrade, then restart (DGX OS brings the driver)'

/** Looks for everything and says what to do about what is missing. Never throws; a check that fails says so. */
export async function checkSystem(): Promise<CheckItem[]> {
  const start = performance.now()
  const hardware = await HardwareInfo.detect({ refresh: true })
  const detection = performance.now() - start
  const { addon } = loadAddon()
  const [nvml, cuda, cublasLt] = addon
    ? await Promise.all([addon.queryNvml(), addon.queryCuda(), addon.queryCublasLt()])
    : [null, null, null]
  const nvidia = hardware.gpus.filter(gpu => gpu.vendor === 'nvidia')
  const facts: Facts = { hardware, detection, nvml, cuda, cublasLt, nvidia }
  const checks = [checkMachine, checkAddon, checkGpus, checkDriver, checkNvml, checkPermissions, checkKernels]
  const items = [...checks, checkCublasLt, checkGraphs, checkMemory, checkOomKills, checkConfiguration].map(
    check => check(facts),
  )
  // Before this process opens the GPU, which in exclusive mode has room for one.
  const fp4 = await checkFp4(facts)
  return [
    ...items,
    ...fp4,
    await checkEngine(facts),
    ...(await checkMemoryKinds(facts)),
    await checkPrecision(),
  ]
}

function checkMachine({ hardware }: Facts): CheckItem {
  const { platform, isDgxSpark } = hardware
  const name =
    [platform.vendor, platform.oemModel ?? platform.product].filter(Boolean).join(' ') || 'unknown maker'
  const kind = isDgxSpark ? 'a DGX Spark' : 'not a DGX Spark'
  return { name: 'machine', status: 'ok', found: `${name}, ${platform.os} ${platform.arch}: ${kind}` }
}

function checkAddon(): CheckItem {
  const loaded = loadAddon()
  if (loaded.addon) return { name: 'native addon', status: 'ok', found: loaded.path }
  const next = 'node node_modules/dgx-spark/native/build.cjs (needs cmake and a C++20 compiler)'
  return { name: 'native addon', status: 'problem', found: loaded.reason, next }
}

function checkGpus({ hardware, nvidia }: Facts): CheckItem {
  const name = 'NVIDIA GPU'
  const others = hardware.gpus.filter(gpu => gpu.vendor !== 'nvidia').map(gpu => gpu.name)
  if (nvidia.length === 0) {
    const found = others.length > 0 ? `none (others: ${others.join(', ')})` : 'none'
    return { name, status: 'note', found, next: 'nothing to do: the CPU computes' }
  }
  const broken = nvidia.filter(gpu => gpu.problem)
  const found = nvidia
    .map(
      ({ name, computeCapability, problem }) =>
        `${name} (${problem ?? `compute capability ${computeCapability}`})`,
    )
    .join(', ')
  if (broken.length === 0) return { name, status: 'ok', found }
  return {
    name,
    status: 'problem',
    found,
    next: 'sudo dmesg | grep -iE "nvrm|xid" shows what the driver met',
  }
}

function checkDriver({ hardware, cuda, nvidia }: Facts): CheckItem {
  const name = 'CUDA driver'
  if (!cuda) return { name, status: 'note', found: 'not looked for without the native addon' }
  const next = hardware.isDgxSpark ? sparkUpdate : driverPackage
  if (cuda.reason) {
    if (nvidia.length === 0) return { name, status: 'note', found: cuda.reason }
    return { name, status: 'problem', found: cuda.reason, next }
  }
  if (cuda.kernelsProblem) return { name, status: 'problem', found: cuda.kernelsProblem, next }
  const version = cuda.version ?? 0
  const found = `CUDA ${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
  return { name, status: 'ok', found }
}

function checkNvml({ nvml, nvidia, hardware }: Facts): CheckItem {
  const name = 'NVML'
  if (!nvml) return { name, status: 'note', found: 'not looked for without the native addon' }
  if (!nvml.reason) return { name, status: 'ok', found: `driver ${nvml.driver ?? 'of unknown version'}` }
  if (nvidia.length === 0) return { name, status: 'note', found: nvml.reason }
  const next = hardware.isDgxSpark
    ? sparkUpdate
    : 'nvidia-smi should list the GPU; if it fails too, reinstall the driver'
  return { name, status: 'problem', found: nvml.reason, next }
}

/** The device files a CUDA program opens. */
function checkPermissions({ nvidia }: Facts): CheckItem {
  const name = 'permissions'
  if (nvidia.length === 0 || process.platform !== 'linux')
    return { name, status: 'ok', found: 'no device files needed' }
  const files = listFolder(systemRoot(), 'dev').filter(file => /^nvidia(\d+|ctl|-uvm)$/.test(file))
  const devices = files.map(file => path.join(systemRoot(), 'dev', file))
  const closed = devices.filter(file => !canOpen(file))
  if (closed.length > 0) {
    const next = 'sudo usermod -aG video,render $USER, then log in again'
    return { name, status: 'problem', found: `no access to ${closed.join(', ')}`, next }
  }
  if (devices.length > 0 && !files.includes('nvidia-uvm')) {
    return {
      name,
      status: 'problem',
      found: '/dev/nvidia-uvm is missing',
      next: 'sudo nvidia-modprobe -u -c=0',
    }
  }
  return {
    name,
    status: 'ok',
    found: devices.length > 0 ? `${devices.join(', ')} can be opened` : 'no device files',
  }
}

function canOpen(file: string): boolean {
  try {
    accessSync(file, constants.R_OK | constants.W_OK)
    return true
  } catch {
    return false
  }
}

function checkKernels({ nvidia }: Facts): CheckItem {
  const name = 'CUDA kernels'
  const families = loadAddon().addon?.kernelFamilies() ?? []
  if (families.length > 0) return { name, status: 'ok', found: `in the addon: ${families.join(', ')}` }
  const next = 'install CUDA 12.9 or newer and run: node node_modules/dgx-spark/native/build.cjs rebuild'
  return { name, status: nvidia.length > 0 ? 'problem' : 'note', found: 'none in the addon', next }
}

function checkCublasLt({ cublasLt }: Facts): CheckItem {
  const name = 'cuBLASLt'
  if (cublasLt && !cublasLt.reason)
    return { name, status: 'ok', found: `${cublasLt.library} ${cublasLt.version ?? ''}` }
  const found = cublasLt?.reason ?? 'not looked for without the native addon'
  return { name, status: 'note', found, next: 'optional: sudo apt-get install cuda-libraries-13-0' }
}

/** Drivers that GB10 has been seen to hang with when it replays a CUDA graph. */
const hangsInGraphs = /^590\./

function checkGraphs({ nvidia }: Facts): CheckItem {
  const name = 'CUDA graphs'
  if (!getConfig().cudaGraphs) {
    const found = 'off by DGX_SPARK_CUDA_GRAPHS=0: each run enqueues its kernels one by one'
    return { name, status: 'ok', found }
  }
  const gpu = nvidia.find(
    ({ computeCapability, driver }) => computeCapability === '12.1' && hangsInGraphs.test(driver ?? ''),
  )
  if (!gpu) return { name, status: 'ok', found: 'on: models replay their runs (DGX_SPARK_CUDA_GRAPHS=1)' }
  const found = `on, but GB10 is known to hang in them under driver ${gpu.driver}`
  const next = `set DGX_SPARK_CUDA_GRAPHS=0, or install a driver of branch 580: ${driverPackage}`
  return { name, status: 'note', found, next }
}

const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`

function checkMemory({ hardware, nvidia }: Facts): CheckItem {
  const name = 'memory'
  const { total, available } = hardware.memory
  const shared = nvidia.some(gpu => gpu.integrated) ? ', shared by CPU and GPU' : ''
  const found = `${gib(available)} of ${gib(total)} available${shared}`
  if (available >= 2 ** 30) return { name, status: 'ok', found }
  return { name, status: 'problem', found, next: 'ps aux --sort=-rss | head shows what takes the memory' }
}

/** What to reduce where memory runs out. */
const useLessMemory =
  "reduce the batch (accumulate keeps its effect), use precision 'bf16' or memory: 'small' in Model.load, in training " +
  'memoryBudget, which recomputes parts of the forward pass instead of keeping them'

/** Processes that the kernel killed: they end without a message of their own. */
function checkOomKills(): CheckItem {
  const name = 'killed for memory'
  const found = oomKills(systemRoot())
  if (!found) return { name, status: 'ok', found: 'not counted here' }
  const { kills, isOwn, limit, limitReached } = found
  const limited = limit === null ? 'without a limit of its own' : `with a limit of ${gib(limit)}`
  const group = isOwn ? `this control group (${limited})` : `a control group above this one (${limited})`
  if (kills === 0) return { name, status: 'ok', found: `no process of ${group}` }
  const reached = limitReached ? `; the limit was reached ${limitReached} times` : ''
  const raise =
    limit === null
      ? 'or end other programs: ps aux --sort=-rss | head'
      : `or raise the limit of ${gib(limit)} (${limit} bytes): docker run --memory, MemoryMax of systemd`
  return {
    name,
    status: 'note',
    found: `${kills} ${kills === 1 ? 'process' : 'processes'} of ${group}${reached}`,
    next: `${useLessMemory}; ${raise}`,
  }
}

function checkConfiguration(): CheckItem {
  const name = 'configuration'
  const { warnings } = readConfig(process.env)
  const found = warnings.map(warning => warning.message).join(' ')
  if (found) return { name, status: 'problem', found, next: 'dgx-spark info shows the values in force' }
  return {
    name,
    status: 'ok',
    found: getConfig().enabled ? 'valid' : 'valid; NVIDIA GPUs are disabled by it',
  }
}

/** Whether FP4 tensor cores are used, by what test. */
async function checkFp4({ hardware }: Facts): Promise<CheckItem[]> {
  if (hardware.backend.name !== 'cuda') return []
  const { found, problem, next } = await findFp4Ways(await cudaDevice())
  const item = { name: 'FP4 tensor cores', status: problem ? ('note' as const) : ('ok' as const), found }
  return [next ? { ...item, next } : item]
}

/** Opens what `auto` chooses, and measures how long that takes in a new process. */
async function checkEngine({ hardware, detection }: Facts): Promise<CheckItem> {
  const name = 'engine'
  const start = performance.now()
  try {
    const { backend } = await openKernels()
    const opening = performance.now() - start
    const ready = `${backend}, ready in ${(detection + opening).toFixed(0)} ms`
    const parts = `${detection.toFixed(0)} to detect, ${opening.toFixed(0)} to open`
    const found = `${ready} (${parts}): ${hardware.backend.reason}`
    if (backend !== 'cuda' || detection + opening <= startBudget) return { name, status: 'ok', found }
    const next = 'sudo systemctl enable --now nvidia-persistenced keeps the driver ready between programs'
    return { name, status: 'problem', found: `${found}; it should take at most ${startBudget} ms`, next }
  } catch (error) {
    return {
      name,
      status: 'problem',
      found: (error as Error).message,
      next: 'dgx-spark info shows the configuration',
    }
  }
}

/** The kinds of memory that plans use on the GPU, and how fast they are where there is a choice. */
async function checkMemoryKinds({ hardware }: Facts): Promise<CheckItem[]> {
  const { addon } = loadAddon()
  if (!addon || hardware.backend.name !== 'cuda') return []
  const name = 'memory kinds'
  try {
    const ordinal = await cudaDevice()
    await addon.openDevice(ordinal)
    const { resident, passing, measured } = await addon.measureMemory(ordinal)
    const rates = (use: 'resident' | 'passing') => {
      const each = measured.map(speed => `${speed.kind} ${speed[use].toFixed(1)}`)
      return each.length > 0 ? ` (GB/s: ${each.join(', ')})` : ''
    }
    const moved = passing === 'device' ? 'copied through pinned memory' : passing
    const found = `weights and arena: ${resident}${rates('resident')}; inputs and outputs: ${moved}${rates('passing')}`
    return [{ name, status: 'ok', found }]
  } catch (error) {
    const next = 'dgx-spark verify runs every kernel on the GPU'
    return [{ name, status: 'problem', found: (error as Error).message, next }]
  }
}

/** The precision mode that models run in when nobody asks for one. */
async function checkPrecision(): Promise<CheckItem> {
  const { name, reason } = await choosePrecision(undefined)
  return { name: 'precision', status: 'ok', found: `${name}: ${reason}` }
}
