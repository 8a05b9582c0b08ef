import t from 'tap'
import { type BackendFacts, bestOf, chooseBackend } from '#lib/hardware/backend-choice.js'
import { gpuRecord } from '../fixtures/gpu.js'

const auto = { enabled: true, backend: 'auto' } as const
const gb10 = gpuRecord({
  name: 'NVIDIA GB10',
  computeCapability: '12.1',
  memory: { total: 128e9, free: 9e9, source: 'meminfo' },
})
const b200 = gpuRecord({
  name: 'NVIDIA B200',
  computeCapability: '10.0',
  memory: { total: 192e9, free: null, source: 'nvml' },
})
const rtxPro = gpuRecord({ name: 'NVIDIA RTX PRO 6000', computeCapability: '12.0' })
const turing = gpuRecord({ name: 'Quadro RTX 5000', computeCapability: '7.5' })
const facts = (changes: Partial<BackendFacts> = {}): BackendFacts => ({
  gpus: [gb10],
  addonProblem: null,
  kernelFamilies: ['cast'],
  ...changes,
})

t.test('the best GPU: a Spark, then compute capability, then memory; never one with a problem', async t => {
  t.equal(bestOf([]), null)
  t.equal(bestOf([b200, rtxPro, gb10]), gb10)
  t.equal(bestOf([gpuRecord({ computeCapability: '13.1', name: 'newer' }), gb10]), gb10, 'a Spark first')
  t.equal(bestOf([gpuRecord({ computeCapability: '9.0' }), b200]), b200, '10.0 is above 9.0')
  const big = gpuRecord({ memory: { total: 48e9, free: 0, source: 'nvml' } })
  t.equal(bestOf([gpuRecord(), big, gpuRecord({ memory: { total: null, free: null, source: null } })]), big)
  t.equal(bestOf([{ ...gb10, problem: 'lost' }, turing]), turing)
  t.equal(bestOf([{ ...gb10, computeCapability: null }]), null)
  t.equal(bestOf([gpuRecord({ vendor: 'amd' })]), null)
  const list = [turing, gb10]
  bestOf(list)
  t.same(list, [turing, gb10], 'the list keeps its order')
})

t.test('auto', async t => {
  t.match(chooseBackend(facts(), auto), { name: 'cuda', gpu: 0, reason: /NVIDIA GB10 .*12\.1/ })
  t.match(chooseBackend(facts({ gpus: [turing, { ...rtxPro, index: 1 }] }), auto), { name: 'cuda', gpu: 1 })
  t.match(chooseBackend(facts({ gpus: [] }), auto), { name: 'cpu', gpu: null, reason: /no NVIDIA GPU/ })
  t.match(chooseBackend(facts({ gpus: [gpuRecord({ vendor: 'amd' })] }), auto).reason, /no NVIDIA GPU/)
  t.match(chooseBackend(facts({ gpus: [turing] }), auto), { name: 'cpu', reason: /7\.5 is below 8\.0/ })
  t.match(chooseBackend(facts({ gpus: [{ ...gb10, problem: 'it is lost' }] }), auto), {
    name: 'cpu',
    reason: /it is lost/,
  })
  t.match(chooseBackend(facts({ kernelFamilies: [] }), auto), { name: 'cpu', reason: /without CUDA kernels/ })
  t.match(chooseBackend(facts({ addonProblem: 'not built' }), auto), { name: 'js', reason: /not built/ })
})

t.test('disabled: as if no NVIDIA GPU were present', async t => {
  const off = { enabled: false, backend: 'auto' } as const
  t.match(chooseBackend(facts(), off), { name: 'cpu', gpu: null, reason: /disabled/ })
  t.match(chooseBackend(facts({ addonProblem: 'not built' }), off), { name: 'js', reason: /not built/ })
  t.match(chooseBackend(facts(), { enabled: false, backend: 'cuda' }), {
    name: 'cuda',
    gpu: null,
    reason: /but .*disabled/,
  })
})

t.test('a named engine is named, with what speaks against it', async t => {
  t.match(chooseBackend(facts(), { enabled: true, backend: 'cuda' }), {
    name: 'cuda',
    gpu: 0,
    reason: 'the configuration asks for cuda',
  })
  t.match(chooseBackend(facts({ gpus: [] }), { enabled: true, backend: 'cuda' }), {
    name: 'cuda',
    gpu: null,
    reason: /cuda, but there is no NVIDIA GPU/,
  })
  t.same(chooseBackend(facts(), { enabled: true, backend: 'cpu' }), {
    name: 'cpu',
    gpu: null,
    reason: 'the configuration asks for cpu',
  })
  t.match(
    chooseBackend(facts({ addonProblem: 'not built' }), { enabled: true, backend: 'cpu' }).reason,
    /cpu, but .*not built/,
  )
  t.match(chooseBackend(facts({ addonProblem: 'not built' }), { enabled: true, backend: 'js' }), {
    name: 'js',
    reason: 'the configuration asks for js',
  })
})
