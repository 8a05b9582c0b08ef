// The tables: precision support, support class, architecture, recommended precision.
import t from 'tap'
import {
  architectureOf,
  capabilityNumber,
  hasCapability,
  precisionSupportOf,
  recommendedPrecisionOf,
  supportClassOf,
} from '#lib/hardware/gpu.js'

t.test('an NVIDIA GPU by its compute capability', async t => {
  // capability, architecture, class, recommended, fp16 bf16 fp8 nvfp4 (n native, e emulated, - none)
  const rows: [string | null, string | null, string, string, string][] = [
    ['12.1', 'Blackwell', 'full', 'bf16', 'nnnn'],
    ['12.0', 'Blackwell', 'full', 'bf16', 'nnnn'],
    ['11.0', 'Blackwell', 'experimental', 'bf16', 'nnnn'],
    ['10.3', 'Blackwell', 'full', 'bf16', 'nnnn'],
    ['10.0', 'Blackwell', 'full', 'bf16', 'nnnn'],
    ['9.0', 'Hopper', 'full', 'bf16', 'nnne'],
    ['8.9', 'Ada Lovelace', 'full', 'bf16', 'nnne'],
    ['8.7', 'Ampere', 'full', 'bf16', 'nnee'],
    ['8.6', 'Ampere', 'full', 'bf16', 'nnee'],
    ['8.0', 'Ampere', 'full', 'bf16', 'nnee'],
    ['7.5', 'Turing', 'partial', 'fp16', 'n---'],
    ['7.0', 'Volta', 'partial', 'fp16', 'n---'],
    ['6.1', 'Pascal', 'partial', 'fp32', '----'],
    ['5.2', 'Maxwell', 'unsupported', 'fp32', '----'],
    ['3.5', 'Kepler', 'unsupported', 'fp32', '----'],
    ['14.0', null, 'experimental', 'bf16', 'nnnn'],
  ]
  for (const [capability, architecture, supportClass, recommended, precisions] of rows) {
    t.equal(architectureOf(capability), architecture, `architecture of ${capability}`)
    t.equal(supportClassOf('nvidia', capability), supportClass, `class of ${capability}`)
    t.equal(recommendedPrecisionOf(capability), recommended, `precision of ${capability}`)
    const support = precisionSupportOf('nvidia', capability)
    const letters = { native: 'n', emulated: 'e', none: '-' }
    const shown = (['fp16', 'bf16', 'fp8', 'nvfp4'] as const).map(mode => letters[support[mode]]).join('')
    t.equal(shown, precisions, `precisions of ${capability}`)
    t.equal(support.fp32, 'native')
  }
})

t.test('an NVIDIA GPU whose compute capability nobody tells', async t => {
  t.equal(supportClassOf('nvidia', null), 'unsupported')
  t.equal(recommendedPrecisionOf(null), 'fp32')
  t.equal(precisionSupportOf('nvidia', null).fp32, 'none')
})

t.test('other makers are listed only', async t => {
  for (const vendor of ['amd', 'intel', 'apple', 'qualcomm', 'unknown'] as const) {
    t.equal(supportClassOf(vendor, null), 'unsupported')
    t.same(new Set(Object.values(precisionSupportOf(vendor, '12.1'))), new Set(['none']))
  }
})

t.test('capabilities compare as numbers, not as text', async t => {
  t.ok(hasCapability('10.0', '9.0'))
  t.notOk(hasCapability('9.0', '10.0'))
  t.ok(hasCapability('8.10', '8.9'))
  for (const text of [null, '', '12', '12.1.0', 'a.b', '-1.0'])
    t.equal(capabilityNumber(text), null, String(text))
})
