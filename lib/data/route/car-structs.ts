// car-structs.ts: the car: CAN frames, its state, what openpilot wants of it.
import { at, bool, data, each, f32, f32s, i8, i16, oneOf, struct, text, u8, u32 } from './fields.js'

/** A CAN frame. */
export const canData = struct({
  address: u32(0),
  /** Up to 8 bytes, 64 with CAN FD. */
  dat: data(0),
  /** Bus; 128 more for frames that were sent. */
  src: u8(48),
})

/** The state of the car, as its interface reads it from CAN frames. */
export const carState = struct({
  /** m/s, filtered. */
  vEgo: f32(0),
  /** m/s. */
  vEgoRaw: f32(256),
  /** m/s, as the instrument cluster shows it. */
  vEgoCluster: f32(448),
  /** m/s^2. */
  aEgo: f32(224),
  /** rad/s. */
  yawRate: f32(288),
  standstill: bool(67),
  /** m/s. */
  wheelSpeeds: at(1, struct({ fl: f32(0), fr: f32(32), rl: f32(64), rr: f32(96) })),
  gasPressed: bool(64),
  brakePressed: bool(65),
  regenBraking: bool(361),
  parkingBrake: bool(357),
  brakeHoldActive: bool(356),
  /** Degrees, left is positive. */
  steeringAngleDeg: f32(128),
  steeringAngleOffsetDeg: f32(384),
  /** Degrees per second. */
  steeringRateDeg: f32(192),
  /** Of the driver, in units of the car. */
  steeringTorque: f32(160),
  /** Of the motor, in units of the car. */
  steeringTorqueEps: f32(320),
  steeringPressed: bool(66),
  steeringDisengage: bool(369),
  steerFaultTemporary: bool(354),
  steerFaultPermanent: bool(355),
  invalidLkasSetting: bool(366),
  stockAeb: bool(77),
  stockFcw: bool(78),
  stockLkas: bool(370),
  espDisabled: bool(79),
  espActive: bool(364),
  accFaulted: bool(359),
  carFaultedNonCritical: bool(362),
  vehicleSensorsInvalid: bool(365),
  lowSpeedAlert: bool(367),
  cruiseState: at(
    2,
    struct({
      enabled: bool(0),
      available: bool(1),
      standstill: bool(2),
      nonAdaptive: bool(3),
      /** m/s. */
      speed: f32(32),
      /** m/s. */
      speedCluster: f32(96),
    }),
  ),
  /** km/h. */
  vCruise: f32(576),
  /** km/h. */
  vCruiseCluster: f32(608),
  gearShifter: oneOf(
    80,
    'unknown',
    'park',
    'drive',
    'neutral',
    'reverse',
    'sport',
    'low',
    'brake',
    'eco',
    'manumatic',
  ),
  buttonEvents: each(
    3,
    struct({
      pressed: bool(0),
      type: oneOf(
        16,
        'unknown',
        'leftBlinker',
        'rightBlinker',
        'accelCruise',
        'decelCruise',
        'cancel',
        'lkas',
        'altButton2',
        'mainCruise',
        'setCruise',
        'resumeCruise',
        'gapAdjustCruise',
      ),
    }),
  ),
  buttonEnable: bool(368),
  leftBlinker: bool(69),
  rightBlinker: bool(70),
  leftBlindspot: bool(352),
  rightBlindspot: bool(353),
  genericToggle: bool(71),
  doorOpen: bool(72),
  seatbeltUnlatched: bool(73),
  canValid: bool(74),
  canTimeout: bool(358),
  canErrorCounter: u32(512),
  /** Share of a full tank. */
  fuelGauge: f32(416),
  charging: bool(360),
  /** Milliseconds. */
  cumLagMs: f32(544),
})

/** Names of the states of longitudinal control. */
export const longControlStates = ['off', 'pid', 'stopping', 'starting']
const visualAlerts = [
  'none',
  'fcw',
  'steerRequired',
  'brakePressed',
  'wrongGear',
  'seatbeltUnbuckled',
  'speedTooHigh',
  'ldw',
]
const audibleAlerts = [
  'none',
  'engage',
  'disengage',
  'refuse',
  'warningSoft',
  'warningImmediate',
  'prompt',
  'promptRepeat',
  'promptDistracted',
]

const actuators = struct({
  /** Of the most there is, -1 to 1, left is positive. */
  torque: f32(64),
  /** Degrees. */
  steeringAngleDeg: f32(96),
  /** 1/m. */
  curvature: f32(224),
  /** m/s^2. */
  accel: f32(128),
  /** m/s. */
  speed: f32(192),
  gas: f32(0),
  brake: f32(32),
  torqueOutputCan: f32(256),
  longControlState: oneOf(160, ...longControlStates),
})

/** What openpilot wants of the car. */
export const carControl = struct({
  enabled: bool(0),
  latActive: bool(2),
  longActive: bool(3),
  leftBlinker: bool(4),
  rightBlinker: bool(5),
  actuators: at(2, actuators),
  /** What the car was sent, until 2023. */
  actuatorsOutput: at(3, actuators),
  /** rad: roll, pitch, yaw. */
  orientationNED: f32s(4),
  /** rad/s. */
  angularVelocity: f32s(5),
  /** 1/m. */
  currentCurvature: f32(192),
  cruiseControl: at(0, struct({ cancel: bool(0), resume: bool(1), override: bool(2) })),
  hudControl: at(
    1,
    struct({
      speedVisible: bool(0),
      /** m/s. */
      setSpeed: f32(32),
      lanesVisible: bool(1),
      leadVisible: bool(2),
      visualAlert: oneOf(16, ...visualAlerts),
      audibleAlert: oneOf(64, ...audibleAlerts),
      rightLaneVisible: bool(3),
      leftLaneVisible: bool(4),
      rightLaneDepart: bool(5),
      leftLaneDepart: bool(6),
      leadDistanceBars: i8(8),
    }),
  ),
})

/** What the car was sent. */
export const carOutput = struct({ actuatorsOutput: at(0, actuators) })

/** Facts about the car. */
export const carParams = struct({
  /** Maker. Logs until 2024 have the name of the car here. */
  brand: text(0),
  carFingerprint: text(1),
  fuzzyFingerprint: bool(13),
  pcmCruise: bool(1),
  enableBsm: bool(14),
  notCar: bool(992),
  /** m/s. */
  minEnableSpeed: f32(32),
  /** m/s. */
  minSteerSpeed: f32(64),
  /** kg. */
  mass: f32(128),
  /** m. */
  wheelbase: f32(160),
  /** m. */
  centerToFront: f32(192),
  steerRatio: f32(224),
  steerRatioRear: f32(256),
  /** kg m^2. */
  rotationalInertia: f32(288),
  tireStiffnessFront: f32(320),
  tireStiffnessRear: f32(352),
  tireStiffnessFactor: f32(1056),
  /** m/s^2. */
  maxLateralAccel: f32(1024),
  autoResumeSng: bool(993),
  steerAtStandstill: bool(999),
  flags: u32(960),
  alternativeExperience: i16(656),
})
