// Backends: the contract on all that work here, what the others lack, and which one is selected.
import t from 'tap'
import { computeBackendNames, createBackend, selectBackend } from '#lib/cluster/devices/select-backend.js'
import { HardwareInfo } from '#lib/hardware/hardware-info.js'
import { loadAddon } from '#lib/native.js'
import { backendContract } from '../../fixtures/cluster/backend-contract.js'

const noAddon = loadAddon().addon ? false : 'no native addon'
const { backend: best } = await HardwareInfo.detect()
const noGpu = best.name === 'cuda' ? false : `no GPU that kernels run on: ${best.reason}`
const noRuntime = await import('onnxruntime-node').then(
  () => false as const,
  () => 'onnxruntime-node is not installed',
)

t.test('js', t => backendContract(t, () => createBackend('js')))
t.test('cpu', { skip: noAddon }, t => backendContract(t, () => createBackend('cpu')))
t.test('cuda', { skip: noGpu }, t => backendContract(t, () => createBackend('cuda')))
t.test('onnxruntime, its CPU provider', { skip: noRuntime }, t =>
  backendContract(t, () => createBackend('onnxruntime')),
)

t.test(
  'what is not there says what is missing',
  { skip: process.platform !== 'linux' || noRuntime },
  async t => {
    const cases = [
      ['rocm', /provider rocm or migraphx, and onnxruntime-node has cpu.*built without ROCm/],
      ['directml', /provider dml.*Windows only/],
      ['metal', /provider coreml or webgpu.*macOS only/],
      ['coreml', /provider coreml.*macOS only/],
      ['tflite', /no TensorFlow Lite runtime/],
    ] as const
    for (const [name, message] of cases) {
      const backend = createBackend(name)
      await t.rejects(backend.open(), { code: 'ERR_UNSUPPORTED', message }, name)
      await backend.close()
    }
  },
)

t.test('selection: the best that works with its reason, or what is asked for', async t => {
  const { backend, reason, refused } = await selectBackend()
  t.ok(computeBackendNames.includes(backend.name))
  for (const each of refused) t.match(reason, each.name)
  if (noGpu) t.match(refused[0], { name: 'cuda', reason: /./ })
  await backend.close()
  const asked = await selectBackend({ backend: 'js' })
  t.match(asked, { reason: 'the option asks for js', refused: [] })
  t.equal(asked.backend.name, 'js')
  await asked.backend.close()
  await t.rejects(selectBackend({ backend: 'tflite' }), { code: 'ERR_UNSUPPORTED' }, 'no silent replacement')
  await t.rejects(selectBackend({ backend: 'abacus' as never }), { code: 'ERR_ARGUMENT' })
  if (noGpu) await t.rejects(selectBackend({ backend: 'cuda' }))
})

t.test('four devices open side by side', { skip: noAddon }, async t => {
  const backends = Array.from({ length: 4 }, () => createBackend(noGpu ? 'cpu' : 'cuda'))
  await Promise.all(backends.map(backend => backend.open()))
  for (const backend of backends) t.ok(backend.initMs !== undefined)
  await Promise.all(backends.map(backend => backend.close()))
})
