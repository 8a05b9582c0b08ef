// HardwareInfo.detect() over fake driver libraries: the addon's real NVML and CUDA code on machines from profiles.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { type Answer, FakeRoot, gb10Pci, type Profile, profile, runChild } from '../fixtures/machine.js'

const meminfo = { 'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\nHugePages_Total: 0\n' }
const spark = new FakeRoot({
  dmi: { vendor: 'NVIDIA', product: 'NVIDIA_DGX_Spark', version: 'A.7', family: 'DGX Spark' },
  pci: [gb10Pci],
  files: {
    ...meminfo,
    'etc/dgx-release':
      'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_SERIAL_NUMBER="SECRET-SERIAL"\n',
  },
})
const pc = new FakeRoot({ dmi: { vendor: 'Example', product: 'PC' }, files: meminfo })
t.teardown(() => {
  spark.dispose()
  pc.dispose()
})

const detectCode = "import { HardwareInfo } from 'dgx-spark'\nconst answer = await HardwareInfo.detect()"
const loaded = loadAddon()
// A build without nvcc has no kernels; then `auto` takes the CPU and says so.
const kernels = (loaded.addon?.kernelFamilies().length ?? 0) > 0

t.test('fake drivers', { skip: noCompiler || (loaded.addon ? false : loaded.reason) }, async t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const detect = (
    machine: Profile,
    root = pc,
    env: Record<string, string> = {},
    drivers = fakeDriver,
  ): Answer => runChild(detectCode, { ...drivers.env(machine), DGX_SPARK_SYSFS_ROOT: root.path, ...env })

  t.test('DGX Spark', async t => {
    const hardware = detect(profile('gb10'), spark)
    t.equal(hardware.isDgxSpark, true)
    t.match(hardware.platform, {
      vendor: 'NVIDIA',
      product: 'NVIDIA_DGX_Spark',
      family: 'DGX Spark',
      oemModel: 'NVIDIA DGX Spark Founders Edition',
      dgxOsVersion: '7.2.3',
    })
    t.same(hardware.gpus, [
      {
        index: 0,
        vendor: 'nvidia',
        name: 'NVIDIA GB10',
        uuid: 'GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8',
        pci: { address: '000f:01:00.0', vendorId: '10de', deviceId: '2e12' },
        cudaIndex: 0,
        computeCapability: '12.1',
        smCount: 48,
        architecture: 'Blackwell',
        driver: '580.95.05',
        cudaVersion: '13.0',
        memory: { total: 128523960320, free: 101234567 * 1024, source: 'meminfo' },
        integrated: true,
        pageableMemoryAccess: true,
        supportClass: 'full',
        precision: { fp32: 'native', fp16: 'native', bf16: 'native', fp8: 'native', nvfp4: 'native' },
        problem: null,
        unavailable: { memory: 'Not Supported' },
      },
    ])
    t.equal(hardware.bestGpu.name, 'NVIDIA GB10')
    t.same(hardware.drivers, { nvml: null, cuda: null })
    t.same(hardware.memory, { total: 127535932 * 1024, available: 101234567 * 1024, source: 'meminfo' })
    t.equal(hardware.backend.name, kernels ? 'cuda' : 'cpu')
    t.match(hardware.backend.reason, /GB10/)
    t.equal(hardware.recommendedPrecision, kernels ? 'bf16' : 'fp32')
    t.notMatch(JSON.stringify(hardware), /SECRET-SERIAL/)
  })

  t.test('a DGX Spark known by its GPU name alone', async t => {
    const hardware = detect(profile('gb10'))
    t.equal(hardware.isDgxSpark, true)
    t.equal(hardware.platform.oemModel, 'GB10 system')
  })

  t.test('disabled: the GPU is listed, the CPU computes', async t => {
    const hardware = detect(profile('gb10'), spark, { DGX_SPARK_ENABLED: '0' })
    t.equal(hardware.gpus.length, 1)
    t.match(hardware.backend, { name: 'cpu', gpu: null, reason: /disabled/ })
    t.equal(hardware.recommendedPrecision, 'fp32')
  })

  t.test('H200', async t => {
    const hardware = detect(profile('h200'))
    t.equal(hardware.isDgxSpark, false)
    t.match(hardware.gpus, [
      {
        computeCapability: '9.0',
        architecture: 'Hopper',
        smCount: 132,
        cudaVersion: '12.8',
        memory: { total: 150754820096, free: 150115450880, source: 'nvml' },
        integrated: false,
        pageableMemoryAccess: false,
        precision: { fp8: 'native', nvfp4: 'emulated' },
        unavailable: {},
      },
    ])
  })

  t.test('RTX card', async t => {
    const hardware = detect(profile('rtx'))
    t.match(hardware.gpus, [
      {
        name: 'NVIDIA GeForce RTX 4070',
        computeCapability: '8.9',
        architecture: 'Ada Lovelace',
        precision: { fp8: 'native' },
      },
    ])
  })

  t.test('two GPUs that NVML and CUDA count differently', async t => {
    const hardware = detect(profile('two-gpus'))
    t.match(hardware.gpus, [
      { index: 0, name: 'Quadro RTX 5000', cudaIndex: 1, smCount: 48, supportClass: 'partial' },
      { index: 1, name: /RTX PRO 6000 Blackwell/, cudaIndex: 0, smCount: 188, supportClass: 'full' },
    ])
    t.equal(hardware.isDgxSpark, false, 'a Blackwell workstation is no Spark')
    t.equal(hardware.bestGpu.index, 1)
    if (kernels) t.equal(hardware.backend.gpu, 1)
  })

  t.test('a GPU that is lost', async t => {
    const root = new FakeRoot({
      pci: [
        { address: '0000:03:00.0', vendor: '10de', device: '27b8', driver: 'nvidia' },
        { address: '0000:04:00.0', vendor: '10de', device: '2331', driver: 'nvidia' },
      ],
    })
    t.teardown(() => root.dispose())
    for (const lost of ['handle', 'getters']) {
      const machine = profile('lost')
      machine.gpus[1]!.lost = lost
      const hardware = detect(machine, root)
      t.equal(hardware.gpus.length, 2)
      t.match(hardware.gpus[0], { name: 'NVIDIA L4', problem: null })
      t.match(hardware.gpus[1], {
        problem: /lost.*reboot/,
        pci: { address: '0000:04:00.0' },
        cudaIndex: null,
      })
      t.equal(hardware.bestGpu.index, 0)
    }
    const machine = profile('lost')
    machine.gpus.shift()
    const hardware = detect(machine)
    t.equal(hardware.bestGpu, null)
    t.match(hardware.backend, { name: 'cpu', reason: /lost/ })
  })

  t.test('a driver without a device', async t => {
    const hardware = detect(profile('no-device'))
    t.same(hardware.gpus, [])
    t.match(hardware.drivers, { nvml: null, cuda: /CUDA_ERROR_NO_DEVICE/ })
    t.match(hardware.backend, { name: 'cpu', reason: /no NVIDIA GPU/ })
  })

  t.test('cuInit fails', async t => {
    const hardware = detect({ ...profile('h200'), cuda: { init: 803 } })
    t.match(hardware.gpus, [
      {
        name: 'NVIDIA H200',
        computeCapability: '9.0',
        cudaIndex: null,
        smCount: null,
        problem: /CUDA_ERROR_SYSTEM_DRIVER_MISMATCH/,
        memory: { source: 'nvml' },
      },
    ])
    t.equal(hardware.bestGpu, null)
    t.match(hardware.backend, { name: 'cpu', reason: /803/ })
    t.equal(hardware.recommendedPrecision, 'fp32')
  })

  t.test('CUDA lists no device although NVML does', async t => {
    const hardware = detect({ ...profile('rtx'), cuda: { order: 'none' } })
    t.match(hardware.gpus, [{ name: /RTX 4070/, problem: /no CUDA-capable device/ }])
  })

  t.test('NVML cannot start: CUDA alone describes the GPU', async t => {
    for (const init of [9, 18]) {
      const hardware = detect({ ...profile('h200'), nvml: { init } })
      t.match(hardware.drivers, { nvml: /nvmlInit failed: Driver/, cuda: null })
      t.match(hardware.gpus, [
        {
          name: 'NVIDIA H200',
          uuid: 'GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9',
          pci: null,
          driver: null,
          cudaVersion: '12.8',
          memory: { total: 150754820096, free: null, source: 'cuda' },
          problem: null,
        },
      ])
    }
  })

  t.test('whatever code NVML answers, detection answers', async t => {
    for (const pretend of [1, 2, 3, 4, 10, 13, 15, 17, 999]) {
      const { gpus } = detect({ ...profile('rtx'), nvml: { pretend } })
      const lost = pretend === 15
      t.equal(gpus.length, lost ? 2 : 1, `code ${pretend}`)
      t.equal(gpus[0].problem === null, !lost)
      t.match(gpus.at(-1), { cudaIndex: 0, computeCapability: '8.9', memory: { source: 'cuda' } })
    }
  })

  t.test('only one of the two libraries is installed', async t => {
    const nvmlOnly = new FakeDriver(['nvml'])
    const cudaOnly = new FakeDriver(['cuda'])
    t.teardown(() => {
      nvmlOnly.dispose()
      cudaOnly.dispose()
    })
    // Hides the library of a machine that has one.
    writeFileSync(path.join(nvmlOnly.folder, 'libcuda.so.1'), 'not a library')
    writeFileSync(path.join(cudaOnly.folder, 'libnvidia-ml.so.1'), 'not a library')
    t.match(detect(profile('rtx'), pc, {}, nvmlOnly).gpus, [
      { name: /4070/, computeCapability: '8.9', problem: /libcuda\.so\.1/ },
    ])
    t.match(detect(profile('rtx'), pc, {}, cudaOnly).gpus, [{ name: /4070/, problem: null, driver: null }])
  })

  t.test('libraries that lack a symbol', async t => {
    const lacking = (...symbols: string[]): FakeDriver => {
      const drivers = new FakeDriver(
        ['cuda', 'nvml'],
        symbols.map(symbol => `NO_${symbol}`),
      )
      t.teardown(() => drivers.dispose())
      return drivers
    }
    const oldNvml = lacking('nvmlDeviceGetMemoryInfo_v2', 'nvmlDeviceGetUUID')
    t.match(detect(profile('rtx'), pc, {}, oldNvml).gpus, [
      {
        uuid: 'GPU-11111111-2222-3333-4444-555555555555',
        cudaIndex: 0,
        memory: { total: 12878610432, free: 11811160064, source: 'nvml' },
        unavailable: { uuid: /lacks the call/ },
      },
    ])
    const oldCuda = lacking('cuDeviceGetUuid_v2')
    t.match(detect(profile('rtx'), pc, {}, oldCuda).gpus, [{ problem: /lacks cuDeviceGetUuid_v2; update/ }])
  })

  t.test('the answer is kept until refresh', async t => {
    const code = `import { HardwareInfo, getBestGpu, getNvidiaGpus, getRecommendedPrecision, isNvidiaAvailable } from 'dgx-spark'
      const [a, b] = await Promise.all([HardwareInfo.detect(), HardwareInfo.detect()])
      const c = await HardwareInfo.detect({ refresh: true })
      const d = await HardwareInfo.detect()
      const [best] = [await getBestGpu()]
      const answer = { ab: a === b, ac: a === c, cd: c === d, name: best.name, count: (await getNvidiaGpus()).length,
        available: await isNvidiaAvailable(), precision: await getRecommendedPrecision(best),
        same: (await getRecommendedPrecision()) === d.recommendedPrecision }`
    const answer = runChild(code, { ...fakeDriver.env(profile('two-gpus')), DGX_SPARK_SYSFS_ROOT: pc.path })
    t.same(answer, {
      ab: true,
      ac: false,
      cd: true,
      name: 'NVIDIA RTX PRO 6000 Blackwell Workstation Edition',
      count: 2,
      available: true,
      precision: 'bf16',
      same: true,
    })
  })

  t.test('detection does not block the JavaScript thread', async t => {
    const code = `import { HardwareInfo } from 'dgx-spark'
      const pending = HardwareInfo.detect()
      let answer = 'blocked'
      await Promise.race([pending, new Promise(resolve => setImmediate(resolve)).then(() => { answer = 'free' })])
      await pending`
    const slow = { ...profile('rtx'), nvml: { initSeconds: 1 }, cuda: { initSeconds: 1 } }
    t.equal(runChild(code, { ...fakeDriver.env(slow), DGX_SPARK_SYSFS_ROOT: pc.path }), 'free')
  })

  t.test('two workers and the main thread look at the same time', async t => {
    const code = `import { Worker } from 'node:worker_threads'
      import { HardwareInfo } from 'dgx-spark'
      const body = "import('dgx-spark').then(({ HardwareInfo }) => HardwareInfo.detect()).then(async h => (await import('node:worker_threads')).parentPort.postMessage(h.gpus[0].name))"
      const names = [1, 2].map(() => new Promise((resolve, reject) => {
        const worker = new Worker(body, { eval: true })
        worker.once('message', resolve).once('error', reject)
      }))
      const answer = [(await HardwareInfo.detect()).gpus[0].name, ...(await Promise.all(names))]`
    const answer = runChild(code, { ...fakeDriver.env(profile('gb10')), DGX_SPARK_SYSFS_ROOT: spark.path })
    t.same(answer, ['NVIDIA GB10', 'NVIDIA GB10', 'NVIDIA GB10'])
  })
})

t.test('without the addon files alone describe the machine', async t => {
  const hardware = runChild(detectCode, { DGX_SPARK_BUILD: 'none', DGX_SPARK_SYSFS_ROOT: spark.path })
  t.equal(hardware.isDgxSpark, true)
  t.match(hardware.gpus, [
    {
      vendor: 'nvidia',
      name: 'NVIDIA GPU 10de:2e12',
      uuid: null,
      computeCapability: null,
      problem: /addon is not loaded/,
    },
  ])
  t.equal(hardware.bestGpu, null)
  t.match(hardware.backend, { name: 'js', gpu: null, reason: /DGX_SPARK_BUILD=none/ })
  t.equal(hardware.recommendedPrecision, 'fp32')
})

t.test('without drivers and without a GPU', async t => {
  const hardware = runChild(detectCode, { DGX_SPARK_SYSFS_ROOT: pc.path, LD_LIBRARY_PATH: '/nonexistent' })
  t.equal(hardware.isDgxSpark, false)
  t.equal(hardware.platform.vendor, 'Example')
})

t.test('on macOS and Windows detection answers too', async t => {
  for (const platform of ['darwin', 'win32']) {
    // The tools that systeminformation calls there are missing here, as on a machine that forbids them.
    const code = `Object.defineProperty(process, 'platform', { value: '${platform}' })
      const { HardwareInfo } = await import('dgx-spark')
      const answer = await HardwareInfo.detect()`
    const hardware = runChild(code, {})
    t.match(hardware, {
      isDgxSpark: false,
      platform: { os: platform },
      bestGpu: null,
      recommendedPrecision: 'fp32',
    })
    t.ok(hardware.memory.total > 0)
    t.notMatch(JSON.stringify(hardware), /serial/i)
  }
})

t.test(
  'DGX_SPARK_LOG=debug tells what was looked for',
  { skip: loaded.addon ? false : loaded.reason },
  async t => {
    const code = `let text = ''
    process.stderr.write = chunk => { text += chunk; return true }
    const { HardwareInfo } = await import('dgx-spark')
    await HardwareInfo.detect()
    const answer = text`
    const text = runChild(code, { DGX_SPARK_LOG: 'debug', DGX_SPARK_SYSFS_ROOT: pc.path })
    t.match(text, /NVML: .*; CUDA: /)
    t.match(text, /backend \w+: /)
  },
)

t.test('an unknown option is refused', async t => {
  const code = `import { HardwareInfo } from 'dgx-spark'
    const answer = await HardwareInfo.detect({ refesh: true }).catch(error => [error.code, error.message])`
  t.match(runChild(code, { DGX_SPARK_SYSFS_ROOT: pc.path }), ['ERR_ARGUMENT', /'refesh'.*refresh/])
})
