import t from 'tap'
import { gpuFromController, otherLinuxGpus } from '#lib/hardware/other-gpus.js'
import { normalizePciAddress, parseDriverInformation, pciName, scanPci } from '#lib/hardware/pci.js'
import { FakeRoot, gb10Pci } from '../fixtures/machine.js'
import { garbage } from '../fixtures/values/garbage.js'

const pciIds = [
  '# a comment',
  '1002  Advanced Micro Devices, Inc. [AMD/ATI]',
  '\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]',
  '\t\t1002 0e3b  Radeon RX 7900 XTX',
  '\t74a1  Aqua Vanjaram [Instinct MI300X]',
  '8086  Intel Corporation',
  '\t46a6  Alder Lake-P GT2 [Iris Xe Graphics]',
  '\t744c  Not a Radeon',
].join('\n')

t.test('bus ids of NVML, CUDA and sysfs are one form', async t => {
  for (const text of ['0000000F:01:00.0', '000F:01:00.0', '000f:01:00.0']) {
    t.equal(normalizePciAddress(text), '000f:01:00.0')
  }
  t.equal(normalizePciAddress('00010000:65:00.0'), '00010000:65:00.0', 'a domain above 16 bits stays')
  for (const text of [null, '', '01:00.0', '0000:01:00.8', 'xxxx:01:00.0', '0000:01:00.0 ']) {
    t.equal(normalizePciAddress(text), null, String(text))
  }
})

t.test('the PCI scan finds GPUs of known makers only', async t => {
  const root = new FakeRoot({
    pci: [
      gb10Pci,
      { address: '0000:00:02.0', vendor: '8086', device: '46a6', class: '030000', driver: 'i915' },
      { address: '0000:03:00.0', vendor: '1002', device: '744c', class: '030000', driver: 'amdgpu' },
      { address: '0000:04:00.0', vendor: '1002', device: '74a1', class: '120000', driver: 'amdgpu' },
      { address: '0000:01:00.1', vendor: '10de', device: '22bc', class: '040300' }, // sound
      { address: '0000:02:00.0', vendor: '1a03', device: '2000', class: '030000' }, // management controller
      { address: '0000:05:00.0', vendor: '8086', device: '4940', class: '0b4000' }, // co-processor
    ],
    files: {
      'sys/bus/pci/devices/0000:06:00.0/class': '0x030000',
      'sys/bus/pci/devices/odd/vendor': '0x10de',
    },
  })
  t.teardown(() => root.dispose())
  t.same(scanPci(root.path), [
    { address: '0000:00:02.0', vendor: 'intel', vendorId: '8086', deviceId: '46a6', driver: 'i915' },
    { address: '0000:03:00.0', vendor: 'amd', vendorId: '1002', deviceId: '744c', driver: 'amdgpu' },
    { address: '0000:04:00.0', vendor: 'amd', vendorId: '1002', deviceId: '74a1', driver: 'amdgpu' },
    { address: '000f:01:00.0', vendor: 'nvidia', vendorId: '10de', deviceId: '2e12', driver: 'nvidia' },
  ])
})

t.test('AMD and Intel GPUs are listed with what sysfs tells', async t => {
  const root = new FakeRoot({
    pci: [
      { address: '0000:00:02.0', vendor: '8086', device: '46a6', class: '030000', driver: 'i915' },
      { address: '0000:03:00.0', vendor: '1002', device: '744c', class: '030000', driver: 'amdgpu' },
      { address: '0000:07:00.0', vendor: '8086', device: '56a0', class: '030000', driver: 'xe' },
    ],
    files: {
      'usr/share/misc/pci.ids': pciIds,
      'sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total': '25753026560\n',
      'sys/bus/pci/devices/0000:03:00.0/mem_info_vram_used': '753026560\n',
    },
  })
  t.teardown(() => root.dispose())
  const gpus = otherLinuxGpus(root.path)
  t.same(
    gpus.map(({ vendor, name, driver, integrated }) => ({ vendor, name, driver, integrated })),
    [
      {
        vendor: 'intel',
        name: 'Intel Alder Lake-P GT2 [Iris Xe Graphics]',
        driver: 'i915',
        integrated: true,
      },
      {
        vendor: 'amd',
        name: 'AMD Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]',
        driver: 'amdgpu',
        integrated: null,
      },
      { vendor: 'intel', name: 'Intel GPU 8086:56a0', driver: 'xe', integrated: false },
    ],
  )
  t.same(gpus[1]!.memory, { total: 25753026560, free: 25000000000, source: 'sysfs' })
  t.ok(gpus.every(gpu => gpu.supportClass === 'unsupported' && gpu.precision.fp32 === 'none'))
})

t.test('GPUs that sit on no PCI bus', async t => {
  const listed = (machine: ConstructorParameters<typeof FakeRoot>[0]) => {
    const root = new FakeRoot(machine)
    t.teardown(() => root.dispose())
    return otherLinuxGpus(root.path).map(({ vendor, name, driver, pci }) => ({ vendor, name, driver, pci }))
  }
  t.same(
    listed({
      files: { 'sys/class/kgsl/kgsl-3d0/gpu_model': 'Adreno630v2\n' },
      links: { 'sys/class/drm/card0/device/driver': '../../bus/platform/drivers/msm_drm' },
    }),
    [{ vendor: 'qualcomm', name: 'Qualcomm Adreno 630', driver: 'kgsl', pci: null }],
    'one Adreno behind two drivers',
  )
  t.same(
    listed({
      files: { 'sys/class/drm/card0/device/of_node/compatible': 'qcom,adreno-740.1\0qcom,adreno\0' },
      links: { 'sys/class/drm/card0/device/driver': '../../bus/platform/drivers/msm' },
    }),
    [{ vendor: 'qualcomm', name: 'Qualcomm Adreno 740', driver: 'msm', pci: null }],
  )
  t.same(
    listed({
      links: {
        'sys/class/drm/card1/device/driver': '../../bus/platform/drivers/asahi',
        'sys/class/drm/card1-HDMI-A-1/device/driver': '../../bus/platform/drivers/asahi',
        'sys/class/drm/card2/device/driver': '../../bus/platform/drivers/apple-drm',
      },
    }),
    [{ vendor: 'apple', name: 'Apple GPU', driver: 'asahi', pci: null }],
  )
})

t.test('controllers of macOS and Windows', async t => {
  const apple = gpuFromController({ vendor: 'Apple', model: 'Apple M4 Max', vram: null, vramDynamic: true })
  t.match(apple, { vendor: 'apple', name: 'Apple M4 Max', integrated: true, pci: null, problem: null })
  t.same(apple.memory, { total: null, free: null, source: null })
  const geforce = gpuFromController({
    vendor: 'NVIDIA',
    model: 'NVIDIA GeForce RTX 5090',
    vendorId: '0x10DE',
    deviceId: '0x2B85',
    vram: 32607,
    vramDynamic: false,
    driverVersion: '32.0.15.7652',
  })
  t.match(geforce, {
    vendor: 'nvidia',
    driver: '32.0.15.7652',
    integrated: false,
    supportClass: 'unsupported',
  })
  t.same(geforce.pci, { address: null, vendorId: '10de', deviceId: '2b85' })
  t.equal(geforce.memory.total, 32607 * 2 ** 20)
  t.match(geforce.problem, /Linux/)
  t.equal(gpuFromController({ vendor: 'Advanced Micro Devices, Inc.', model: 'Radeon 780M' }).vendor, 'amd')
  t.equal(gpuFromController({ vendor: 'Intel Corporation', model: 'Arc' }).vendor, 'intel')
  t.equal(gpuFromController({ vendor: 'Qualcomm', model: 'Adreno X1-85' }).vendor, 'qualcomm')
  t.equal(gpuFromController({}).name, 'Unknown GPU')
})

t.test('names come from the right vendor of pci.ids', async t => {
  t.equal(pciName(pciIds, '1002', '744c'), 'Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]')
  t.equal(pciName(pciIds, '8086', '744c'), 'Not a Radeon')
  t.equal(pciName(pciIds, '1002', '46a6'), null, "another vendor's device")
  t.equal(pciName(pciIds, '1002', '0e3b'), null, 'a subsystem is no device')
  t.equal(pciName(pciIds, '10de', '2e12'), null)
  t.equal(pciName('', '10de', '2e12'), null)
})

t.test('what the NVIDIA kernel module says', async t => {
  const information = [
    'Model: \t\t NVIDIA GB10',
    'IRQ:   \t\t 409',
    'GPU UUID: \t GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8',
    'Bus Location: \t 000f:01:00.0',
  ].join('\n')
  t.same(parseDriverInformation(information), {
    name: 'NVIDIA GB10',
    uuid: 'GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8',
  })
  t.same(parseDriverInformation('Model:\nGPU UUID: GPU-????????-????\n'), { name: null, uuid: null })
  for (const text of garbage(information, 500, 3)) parseDriverInformation(text)
})

t.test('no content of sysfs makes the scan throw', async t => {
  let round = 0
  for (const text of garbage('0x10de\n', 60, 5)) {
    const folder = 'sys/bus/pci/devices/0000:01:00.0'
    const keep = (name: string, good: string): string | Buffer =>
      round % 3 === name.length % 3 ? text : good
    const root = new FakeRoot({
      files: {
        [`${folder}/vendor`]: keep('vendor', '0x1002'),
        [`${folder}/device`]: keep('device_', '0x744c'),
        [`${folder}/class`]: keep('class', '0x030000'),
        [`${folder}/mem_info_vram_total`]: text,
        'usr/share/misc/pci.ids': text,
        'sys/class/kgsl/kgsl-3d0/gpu_model': text,
      },
    })
    otherLinuxGpus(root.path)
    root.dispose()
    ++round
  }
  t.equal(round, 60)
})
