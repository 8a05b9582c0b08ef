// One list of GPUs out of NVML, CUDA, kernel module and PCI bus.
import t, { type Test } from 'tap'
import { nvidiaGpus } from '#lib/hardware/nvidia.js'
import type { CudaDevice, CudaReport, NvmlDevice, NvmlReport } from '#lib/native.js'
import { type FakeMachine, FakeRoot, gb10Pci } from '../fixtures/machine.js'

delete process.env.CUDA_VISIBLE_DEVICES // of the machine the test runs on

const uuid = (letter: string): string => `GPU-${letter.repeat(8)}-0000-0000-0000-00000000000${letter}`

const nvmlDevice = (index: number, changes: Partial<NvmlDevice> = {}): NvmlDevice => ({
  index,
  name: 'NVIDIA L4',
  uuid: uuid('a'),
  pci: '00000000:03:00.0',
  pciId: 0x27b810de,
  computeCapability: '8.9',
  memory: { total: 24e9, free: 23e9, used: 1e9 },
  problem: null,
  unavailable: {},
  ...changes,
})

const cudaDevice = (ordinal: number, changes: Partial<CudaDevice> = {}): CudaDevice => ({
  ordinal,
  name: 'NVIDIA L4',
  uuid: uuid('a'),
  pci: '0000:03:00.0',
  computeCapability: '8.9',
  memory: 23.9e9,
  smCount: 58,
  integrated: false,
  pageableMemoryAccess: false,
  managedMemory: true,
  concurrentManagedAccess: true,
  ...changes,
})

const nvml = (...devices: NvmlDevice[]): NvmlReport => ({
  reason: null,
  driver: '580.95.05',
  cudaVersion: 13000,
  devices,
})
const cuda = (...devices: CudaDevice[]): CudaReport => ({
  reason: null,
  kernelsProblem: null,
  version: 12080,
  devices,
})
const noNvml: NvmlReport = {
  reason: 'libnvidia-ml.so.1: not found',
  driver: null,
  cudaVersion: null,
  devices: [],
}
const noCuda: CudaReport = { reason: 'cuInit failed', kernelsProblem: null, version: null, devices: [] }

function rooted(t: Test, machine: FakeMachine = {}): string {
  const root = new FakeRoot(machine)
  t.teardown(() => root.dispose())
  return root.path
}

t.test('NVML and CUDA in different orders are joined by uuid', async t => {
  const gpus = nvidiaGpus(rooted(t), {
    nvml: nvml(
      nvmlDevice(0, { name: 'first' }),
      nvmlDevice(1, { name: 'second', uuid: uuid('b'), pci: '00000000:04:00.0' }),
    ),
    cuda: cuda(cudaDevice(0, { uuid: uuid('b'), pci: '0000:04:00.0', smCount: 132 }), cudaDevice(1)),
  })
  t.match(gpus, [
    { name: 'first', cudaIndex: 1, smCount: 58 },
    { name: 'second', cudaIndex: 0, smCount: 132 },
  ])
})

t.test('a uuid that differs (MIG) or is missing: joined by PCI address', async t => {
  for (const other of ['GPU-99999999-0000-0000-0000-000000000000', null]) {
    const gpus = nvidiaGpus(rooted(t), {
      nvml: nvml(nvmlDevice(0)),
      cuda: cuda(cudaDevice(0, { uuid: other })),
    })
    t.match(gpus, [{ cudaIndex: 0, uuid: uuid('a'), problem: null }])
    t.equal(gpus.length, 1)
  }
})

t.test('entries without uuid and address', async t => {
  const blank = { uuid: null, pci: null }
  const count = (nvmlCount: number, cudaCount: number, changes: Partial<NvmlDevice> = {}): number =>
    nvidiaGpus(rooted(t), {
      nvml: nvml(...Array.from({ length: nvmlCount }, (_, i) => nvmlDevice(i, { ...blank, ...changes }))),
      cuda: cuda(...Array.from({ length: cudaCount }, (_, i) => cudaDevice(i, blank))),
    }).length
  t.equal(count(1, 1), 1, 'one and one can only be the same')
  t.equal(count(2, 1), 3, 'nothing says which of the two it is')
  t.equal(count(1, 1, { problem: 'lost' }), 2, 'CUDA does not list a lost GPU')
})

t.test('memory of a GPU that shares the machine’s', async t => {
  const root = rooted(t, { files: { 'proc/meminfo': 'MemTotal: 127000000 kB\nMemAvailable: 90000000 kB\n' } })
  const integrated = { integrated: true, computeCapability: '12.1', memory: 125e9 }
  const [gpu] = nvidiaGpus(root, {
    // one driver is said to answer with the machine's own totals
    nvml: nvml(nvmlDevice(0, { memory: { total: 127000000 * 1024, free: 5, used: 0 } })),
    cuda: cuda(cudaDevice(0, integrated)),
  })
  t.same(gpu!.memory, { total: 125e9, free: 90000000 * 1024, source: 'meminfo' })
  const [small] = nvidiaGpus(root, {
    nvml: noNvml,
    cuda: cuda(cudaDevice(0, { ...integrated, memory: 8e9 })),
  })
  t.same(small!.memory, { total: 8e9, free: 8e9, source: 'meminfo' }, 'never more free than there is')
  const [unread] = nvidiaGpus(rooted(t), { nvml: noNvml, cuda: cuda(cudaDevice(0, integrated)) })
  t.same(unread!.memory, { total: 125e9, free: null, source: 'cuda' })
})

t.test('memory of a discrete GPU', async t => {
  const memory = (device: Partial<NvmlDevice>, report = cuda(cudaDevice(0))) =>
    nvidiaGpus(rooted(t), { nvml: nvml(nvmlDevice(0, device)), cuda: report })[0]!.memory
  t.same(memory({}), { total: 24e9, free: 23e9, source: 'nvml' })
  t.same(memory({ memory: null }), { total: 23.9e9, free: null, source: 'cuda' })
  t.same(memory({ memory: { total: 0, free: 0, used: 0 } }), { total: 23.9e9, free: null, source: 'cuda' })
  t.same(memory({ memory: { total: 1, free: 2, used: 0 } }), { total: 23.9e9, free: null, source: 'cuda' })
  t.same(memory({ memory: null }, noCuda), { total: null, free: null, source: null })
})

t.test('a GB10 without CUDA is still known to share memory', async t => {
  const root = rooted(t, {
    pci: [gb10Pci],
    files: { 'proc/meminfo': 'MemTotal: 127000000 kB\nMemAvailable: 90000000 kB\n' },
  })
  const [gpu] = nvidiaGpus(root, { nvml: noNvml, cuda: noCuda })
  t.match(gpu, {
    name: 'NVIDIA GPU 10de:2e12',
    integrated: true,
    computeCapability: null,
    architecture: null,
  })
  t.same(gpu!.memory, { total: 127000000 * 1024, free: 90000000 * 1024, source: 'meminfo' })
  t.equal(gpu!.supportClass, 'unsupported', 'compute capability comes from the driver, never from the name')
})

t.test('a GPU that NVML cannot open keeps its place and gets its address from sysfs', async t => {
  const root = rooted(t, {
    pci: [
      { address: '0000:03:00.0', vendor: '10de', device: '27b8', driver: 'nvidia' },
      { address: '0000:04:00.0', vendor: '10de', device: '2331', driver: 'nvidia' },
    ],
    files: {
      'proc/driver/nvidia/gpus/0000:04:00.0/information':
        'Model: NVIDIA H100 PCIe\nGPU UUID: GPU-dddddddd-0000-0000-0000-00000000000d\n',
    },
  })
  const lost = nvmlDevice(1, {
    name: null,
    uuid: null,
    pci: null,
    pciId: null,
    computeCapability: null,
    memory: null,
    problem: 'the GPU is lost',
  })
  const gpus = nvidiaGpus(root, { nvml: nvml(nvmlDevice(0), lost), cuda: cuda(cudaDevice(0)) })
  t.equal(gpus.length, 2)
  t.match(gpus[1], {
    name: 'NVIDIA H100 PCIe',
    uuid: 'GPU-dddddddd-0000-0000-0000-00000000000d',
    pci: { address: '0000:04:00.0', deviceId: '2331' },
    problem: 'the GPU is lost',
    computeCapability: null,
  })
})

t.test('two entries without address and one left on the bus: no guess', async t => {
  const root = rooted(t, {
    pci: [{ address: '0000:04:00.0', vendor: '10de', device: '2331', driver: 'nvidia' }],
  })
  const lost = (index: number): NvmlDevice =>
    nvmlDevice(index, {
      name: null,
      uuid: null,
      pci: null,
      pciId: null,
      computeCapability: null,
      problem: 'lost',
    })
  const gpus = nvidiaGpus(root, { nvml: nvml(lost(0), lost(1)), cuda: noCuda })
  t.same(
    gpus.map(gpu => gpu.pci?.address ?? null),
    [null, null, '0000:04:00.0'],
  )
})

t.test('why a GPU cannot compute', async t => {
  const pci = (driver?: string): string =>
    rooted(t, {
      pci: [{ address: '0000:03:00.0', vendor: '10de', device: '27b8', ...(driver && { driver }) }],
    })
  const problem = (root: string, reports: Parameters<typeof nvidiaGpus>[1]): string | null =>
    nvidiaGpus(root, reports)[0]!.problem
  t.match(problem(pci('nouveau'), { nvml: noNvml, cuda: noCuda }), /kernel driver nouveau/)
  t.match(problem(pci('nvidia'), { nvml: noNvml, cuda: noCuda }), /cuInit failed/)
  t.match(problem(pci(), { nvml: nvml(nvmlDevice(0)), cuda: cuda() }), /does not list it/)
  t.match(
    problem(pci(), { nvml: noNvml, cuda: cuda(cudaDevice(0, { computeCapability: null })) }),
    /compute capability/,
  )
  t.equal(problem(pci(), { nvml: noNvml, cuda: cuda(cudaDevice(0)) }), null, 'CUDA without NVML is enough')
})

t.test('a GPU left out by CUDA_VISIBLE_DEVICES says so', async t => {
  process.env.CUDA_VISIBLE_DEVICES = ''
  t.teardown(() => delete process.env.CUDA_VISIBLE_DEVICES)
  const [gpu] = nvidiaGpus(rooted(t), { nvml: nvml(nvmlDevice(0)), cuda: cuda() })
  t.match(gpu!.problem, /CUDA_VISIBLE_DEVICES=$/)
})

t.test('versions come from NVML, else CUDA and the kernel module', async t => {
  const version =
    'NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\nGCC version:  gcc 13.3.0\n'
  const root = rooted(t, { files: { 'proc/driver/nvidia/version': version } })
  t.match(nvidiaGpus(root, { nvml: noNvml, cuda: cuda(cudaDevice(0)) }), [
    { driver: '580.95.05', cudaVersion: '12.8' },
  ])
  t.match(nvidiaGpus(rooted(t), { nvml: nvml(nvmlDevice(0)), cuda: noCuda }), [
    { driver: '580.95.05', cudaVersion: '13.0' },
  ])
})
