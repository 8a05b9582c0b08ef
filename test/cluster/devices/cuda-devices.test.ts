// GPUs of fake drivers: their records, telemetry and state, unplugging, and the CUDA backend. The driver launches kernels and
// computes nothing, so that results are checked for shapes only.
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler, noCudaCalls } from '../../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, gb10Pci, type Profile, profile, runChild } from '../../fixtures/machine.js'

const loaded = loadAddon()

t.test('fake drivers', { skip: noCompiler || (loaded.addon ? false : loaded.reason) }, async t => {
  const fakeDriver = new FakeDriver()
  const root = new FakeRoot({
    pci: [gb10Pci],
    files: { 'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\n' },
  })
  t.teardown(() => {
    fakeDriver.dispose()
    root.dispose()
  })
  const child = (machine: Profile, code: string) =>
    runChild(
      `import { DeviceRegistry } from '#lib/cluster/devices/device-registry.js'
       import { createBackend, selectBackend } from '#lib/cluster/devices/select-backend.js'
       import { GraphBuilder, Tensor } from 'dgx-spark'
       const file = ${JSON.stringify(`${t.testdir()}/devices.json`)}\n${code}`,
      { ...fakeDriver.env(machine), DGX_SPARK_SYSFS_ROOT: root.path },
    )

  t.test('the record of a GB10', async t => {
    const { first, known } = child(
      profile('gb10'),
      `const registry = await DeviceRegistry.open({ nodeId: 'node-1', file })
       await registry.poll()
       const answer = { first: registry.devices[0], known: registry.devices.length }`,
    )
    t.equal(known, 2, 'GPU and CPU')
    t.match(first, {
      id: 'GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8',
      nodeId: 'node-1',
      kind: 'gpu',
      vendor: 'nvidia',
      model: 'NVIDIA GB10',
      architecture: 'Blackwell',
      memoryBytes: 128523960320,
      sharesHostMemory: true,
      computeCapability: '12.1',
      computeUnits: 48,
      runtime: { state: 'ready' },
      support: { class: 'full' },
      telemetry: {
        utilization: 96,
        temperature: 67,
        power: 41.3,
        throttleReasons: [],
        memoryFree: 101234567 * 1024,
      },
      state: 'computing',
    })
    t.notOk('powerLimit' in first.telemetry, 'what NVML does not tell is missing')
    if (noCudaCalls) return
    t.match(first.backends, [{ name: 'cuda', native: ['f32', 'f16', 'bf16', 'f8_e4m3', 'f4'] }])
    t.ok(JSON.stringify(first).length < 10_000)
  })

  t.test('a GPU that the driver lost is there, and computes nothing', async t => {
    const { devices } = child(
      profile('lost'),
      `const registry = await DeviceRegistry.open({ nodeId: 'node-1', file: file + '2' })
       await registry.poll()
       const answer = { devices: registry.devices.filter(({ kind }) => kind === 'gpu') }`,
    )
    const lost = devices.filter(({ backends }: { backends: unknown[] }) => backends.length === 0)
    t.ok(lost.length > 0)
    for (const { runtime, telemetry } of lost) {
      t.not(runtime.state, 'ready')
      t.ok(runtime.problem.length > 0)
      t.equal(telemetry, undefined)
    }
  })

  t.test('the CUDA backend opens, moves, runs and names leaks', { skip: noCudaCalls }, async t => {
    const answer = child(
      profile('gb10'),
      `const { backend, reason } = await selectBackend()
       const [a, b] = [await backend.allocate(4099, 'a'), await backend.allocate(4099, 'b')]
       const source = Uint8Array.from({ length: 4099 }, (_, i) => i)
       const target = new Uint8Array(4099)
       backend.upload(source, a)
       backend.copy(a, b)
       await backend.download(b, target).wait()
       const g = new GraphBuilder()
       g.output(g.add('MatMul', [g.input('x', 'f32', ['n', 16]), g.initializer('w', Tensor.random([16, 8]))]), 'y')
       const x = { buffer: a, dtype: 'f32', shape: [3, 16] }
       const shapes = []
       for await (const { y } of backend.run({ graph: g.build(), feeds: [{ x }, { x }] })) shapes.push(y.shape)
       a.release()
       const others = [createBackend('cuda'), createBackend('cuda', 0)]
       await Promise.all(others.map(each => each.open()))
       const answer = {
         name: backend.name, device: backend.device, reason, shapes,
         same: Buffer.compare(source, target) === 0,
         leaks: await backend.close(),
         opened: others.every(({ initMs }) => initMs > 0),
       }
       for (const each of others) await each.close()`,
    )
    t.match(answer, {
      name: 'cuda',
      device: 'NVIDIA GB10',
      reason: 'NVIDIA GB10 is the best that works',
      shapes: [
        [3, 8],
        [3, 8],
      ],
      same: true,
      leaks: [{ label: 'b', bytes: 4099, owners: 1 }],
      opened: true,
    })
  })
})
