//! The fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), with the types in Go's messages.

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum KubeletKind {
    /// `true` or `false`.
    Bool,
    /// A whole number, of `int32`, `int64` or another type of Go.
    Int(Width, &'static str),
    /// A number.
    Float,
    /// A text; the name is Go's.
    Text(&'static str),
    /// A duration such as `1m30s`.
    Duration,
    /// A duration, or a number of nanoseconds.
    TimeOrDuration,
    /// A quantity such as `1Gi`.
    Quantity,
    /// A list, with Go's name.
    List(&'static KubeletKind, &'static str),
    /// A map with names as keys, with Go's name.
    Map(&'static KubeletKind, &'static str),
    /// Fields.
    Struct(&'static Struct),
}

/// The bounds of a whole number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    /// 32 bits, signed.
    Signed32,
    /// 64 bits, signed.
    Signed64,
    /// 32 bits, without a sign.
    Unsigned32,
}

/// A type with fields.
#[derive(Debug)]
pub(super) struct Struct {
    /// Go's name, with its package.
    pub(super) name: &'static str,
    /// The fields.
    pub(super) fields: &'static [KubeletField],
}

impl Struct {
    /// Returns the name without the package.
    pub(super) fn short_name(&self) -> &'static str {
        let (_, name) = self.name.rsplit_once('.').unwrap_or(("", self.name));
        name
    }

    /// Returns the field of a key, by exact name or else ignoring case, like Go.
    pub(super) fn find_field(&self, key: &str) -> Option<&'static KubeletField> {
        let same = |field: &&KubeletField| field.name == key;
        let folded = |field: &&KubeletField| field.name.eq_ignore_ascii_case(key);
        let exact = self.fields.iter().find(same);
        exact.or_else(|| self.fields.iter().find(folded))
    }
}

/// A field of a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct KubeletField {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Its type.
    pub(super) kind: KubeletKind,
    /// It distinguishes a missing value from an empty one.
    pub(super) pointer: bool,
    /// An empty value is left out (`omitempty`).
    pub(super) omits_empty: bool,
    /// The embedded type that has the field, which Go's messages name before it.
    pub(super) embedded: Option<&'static str>,
}

impl KubeletField {
    /// Returns true if the field is in every file: to Go, structs are never empty.
    pub(super) fn is_always(&self) -> bool {
        let is_struct = matches!(
            self.kind,
            KubeletKind::Duration
                | KubeletKind::TimeOrDuration
                | KubeletKind::Quantity
                | KubeletKind::Struct(_)
        );
        !self.pointer && (is_struct || !self.omits_empty)
    }

    const fn always(mut self) -> Self {
        self.omits_empty = false;
        self
    }

    const fn embedded_in(mut self, embedded: &'static str) -> Self {
        self.embedded = Some(embedded);
        self
    }
}

const fn plain_field(name: &'static str, kind: KubeletKind) -> KubeletField {
    KubeletField {
        name,
        kind,
        pointer: false,
        omits_empty: true,
        embedded: None,
    }
}

const fn pointer_field(name: &'static str, kind: KubeletKind) -> KubeletField {
    KubeletField {
        name,
        kind,
        pointer: true,
        omits_empty: true,
        embedded: None,
    }
}

const BOOL: KubeletKind = KubeletKind::Bool;
const INT32: KubeletKind = KubeletKind::Int(Width::Signed32, "int32");
const INT64: KubeletKind = KubeletKind::Int(Width::Signed64, "int64");
const LEVEL: KubeletKind = KubeletKind::Int(Width::Unsigned32, "v1.VerbosityLevel");
const TEXT: KubeletKind = KubeletKind::Text("string");
const DURATION: KubeletKind = KubeletKind::Duration;
const TEXTS: KubeletKind = KubeletKind::List(&TEXT, "[]string");
const INTS: KubeletKind = KubeletKind::List(&INT32, "[]int32");
const MAP: KubeletKind = KubeletKind::Map(&TEXT, "map[string]string");
const META: &str = "TypeMeta";
const OUTPUT: &str = "OutputRoutingOptions";

/// The whole configuration.
pub(super) static KUBELET: Struct = Struct {
    name: "v1beta1.KubeletConfiguration",
    fields: &[
        plain_field("kind", TEXT).embedded_in(META),
        plain_field("apiVersion", TEXT).embedded_in(META),
        pointer_field("enableServer", BOOL),
        plain_field("staticPodPath", TEXT),
        plain_field("podLogsDir", TEXT),
        plain_field("syncFrequency", DURATION),
        plain_field("fileCheckFrequency", DURATION),
        plain_field("httpCheckFrequency", DURATION),
        plain_field("staticPodURL", TEXT),
        plain_field(
            "staticPodURLHeader",
            KubeletKind::Map(&TEXTS, "map[string][]string"),
        ),
        plain_field("address", TEXT),
        plain_field("port", INT32),
        plain_field("readOnlyPort", INT32),
        plain_field("tlsCertFile", TEXT),
        plain_field("tlsPrivateKeyFile", TEXT),
        plain_field("tlsCipherSuites", TEXTS),
        plain_field("tlsCurvePreferences", INTS),
        plain_field("tlsMinVersion", TEXT),
        plain_field("rotateCertificates", BOOL),
        plain_field("serverTLSBootstrap", BOOL),
        plain_field("authentication", KubeletKind::Struct(&AUTHENTICATION)).always(),
        plain_field("authorization", KubeletKind::Struct(&AUTHORIZATION)).always(),
        pointer_field("registryPullQPS", INT32),
        plain_field("registryBurst", INT32),
        plain_field(
            "imagePullCredentialsVerificationPolicy",
            KubeletKind::Text("v1beta1.ImagePullCredentialsVerificationPolicy"),
        ),
        plain_field("preloadedImagesVerificationAllowlist", TEXTS),
        pointer_field("eventRecordQPS", INT32),
        plain_field("eventBurst", INT32),
        pointer_field("enableDebuggingHandlers", BOOL),
        plain_field("enableContentionProfiling", BOOL),
        pointer_field("healthzPort", INT32),
        plain_field("healthzBindAddress", TEXT),
        pointer_field("oomScoreAdj", INT32),
        plain_field("clusterDomain", TEXT),
        plain_field("clusterDNS", TEXTS),
        plain_field("streamingConnectionIdleTimeout", DURATION),
        plain_field("nodeStatusUpdateFrequency", DURATION),
        plain_field("nodeStatusReportFrequency", DURATION),
        plain_field("nodeLeaseDurationSeconds", INT32),
        plain_field("imageMinimumGCAge", DURATION),
        plain_field("imageMaximumGCAge", DURATION),
        pointer_field("imageGCHighThresholdPercent", INT32),
        pointer_field("imageGCLowThresholdPercent", INT32),
        plain_field("volumeStatsAggPeriod", DURATION),
        plain_field("kubeletCgroups", TEXT),
        plain_field("systemCgroups", TEXT),
        plain_field("cgroupRoot", TEXT),
        pointer_field("cgroupsPerQOS", BOOL),
        plain_field("cgroupDriver", TEXT),
        plain_field("cpuManagerPolicy", TEXT),
        pointer_field("singleProcessOOMKill", BOOL),
        plain_field("cpuManagerPolicyOptions", MAP),
        plain_field("cpuManagerReconcilePeriod", DURATION),
        plain_field("memoryManagerPolicy", TEXT),
        plain_field("topologyManagerPolicy", TEXT),
        plain_field("topologyManagerScope", TEXT),
        plain_field("topologyManagerPolicyOptions", MAP),
        plain_field("qosReserved", MAP),
        plain_field("runtimeRequestTimeout", DURATION),
        plain_field("hairpinMode", TEXT),
        plain_field("maxPods", INT32),
        plain_field("podCIDR", TEXT),
        pointer_field("podPidsLimit", INT64),
        pointer_field("resolvConf", TEXT),
        plain_field("runOnce", BOOL),
        pointer_field("cpuCFSQuota", BOOL),
        pointer_field("cpuCFSQuotaPeriod", DURATION),
        pointer_field("nodeStatusMaxImages", INT32),
        plain_field("maxOpenFiles", INT64),
        plain_field("contentType", TEXT),
        pointer_field("kubeAPIQPS", INT32),
        plain_field("kubeAPIBurst", INT32),
        pointer_field("serializeImagePulls", BOOL),
        pointer_field("maxParallelImagePulls", INT32),
        plain_field("evictionHard", MAP),
        plain_field("evictionSoft", MAP),
        plain_field("evictionSoftGracePeriod", MAP),
        plain_field("evictionPressureTransitionPeriod", DURATION),
        plain_field("evictionMaxPodGracePeriod", INT32),
        plain_field("evictionMinimumReclaim", MAP),
        pointer_field("mergeDefaultEvictionSettings", BOOL),
        plain_field("podsPerCore", INT32),
        pointer_field("enableControllerAttachDetach", BOOL),
        plain_field("protectKernelDefaults", BOOL),
        pointer_field("makeIPTablesUtilChains", BOOL),
        pointer_field("iptablesMasqueradeBit", INT32),
        pointer_field("iptablesDropBit", INT32),
        plain_field("featureGates", KubeletKind::Map(&BOOL, "map[string]bool")),
        pointer_field("failSwapOn", BOOL),
        plain_field("memorySwap", KubeletKind::Struct(&MEMORY_SWAP)),
        plain_field("containerLogMaxSize", TEXT),
        pointer_field("containerLogMaxFiles", INT32),
        pointer_field("containerLogMaxWorkers", INT32),
        pointer_field("containerLogMonitorInterval", DURATION),
        plain_field(
            "configMapAndSecretChangeDetectionStrategy",
            KubeletKind::Text("v1beta1.ResourceChangeDetectionStrategy"),
        ),
        plain_field("systemReserved", MAP),
        plain_field("kubeReserved", MAP),
        plain_field("reservedSystemCPUs", TEXT),
        plain_field("showHiddenMetricsForVersion", TEXT),
        plain_field("systemReservedCgroup", TEXT),
        plain_field("kubeReservedCgroup", TEXT),
        plain_field("enforceNodeAllocatable", TEXTS),
        plain_field("allowedUnsafeSysctls", TEXTS),
        plain_field("volumePluginDir", TEXT),
        plain_field("providerID", TEXT),
        plain_field("kernelMemcgNotification", BOOL),
        plain_field("logging", KubeletKind::Struct(&LOGGING)),
        pointer_field("enableSystemLogHandler", BOOL),
        pointer_field("enableSystemLogQuery", BOOL),
        plain_field("shutdownGracePeriod", DURATION),
        plain_field("shutdownGracePeriodCriticalPods", DURATION),
        plain_field(
            "shutdownGracePeriodByPodPriority",
            KubeletKind::List(
                &KubeletKind::Struct(&SHUTDOWN),
                "[]v1beta1.ShutdownGracePeriodByPodPriority",
            ),
        ),
        plain_field("crashLoopBackOff", KubeletKind::Struct(&CRASH_LOOP)),
        plain_field(
            "reservedMemory",
            KubeletKind::List(&KubeletKind::Struct(&MEMORY), "[]v1beta1.MemoryReservation"),
        ),
        pointer_field("enableProfilingHandler", BOOL),
        pointer_field("enableDebugFlagsHandler", BOOL),
        pointer_field("seccompDefault", BOOL),
        pointer_field("memoryThrottlingFactor", KubeletKind::Float),
        plain_field(
            "memoryReservationPolicy",
            KubeletKind::Text("v1beta1.MemoryReservationPolicy"),
        ),
        plain_field(
            "registerWithTaints",
            KubeletKind::List(&KubeletKind::Struct(&TAINT), "[]v1.Taint"),
        ),
        pointer_field("registerNode", BOOL),
        pointer_field("tracing", KubeletKind::Struct(&TRACING)),
        pointer_field("localStorageCapacityIsolation", BOOL),
        plain_field("containerRuntimeEndpoint", TEXT).always(),
        plain_field("imageServiceEndpoint", TEXT),
        pointer_field("failCgroupV1", BOOL),
        pointer_field("userNamespaces", KubeletKind::Struct(&USER_NAMESPACES)),
    ],
};

static AUTHENTICATION: Struct = Struct {
    name: "v1beta1.KubeletAuthentication",
    fields: &[
        plain_field("x509", KubeletKind::Struct(&X509)),
        plain_field("webhook", KubeletKind::Struct(&WEBHOOK)),
        plain_field("anonymous", KubeletKind::Struct(&ANONYMOUS)),
    ],
};

static X509: Struct = Struct {
    name: "v1beta1.KubeletX509Authentication",
    fields: &[plain_field("clientCAFile", TEXT)],
};

static WEBHOOK: Struct = Struct {
    name: "v1beta1.KubeletWebhookAuthentication",
    fields: &[
        pointer_field("enabled", BOOL),
        plain_field("cacheTTL", DURATION),
    ],
};

static ANONYMOUS: Struct = Struct {
    name: "v1beta1.KubeletAnonymousAuthentication",
    fields: &[pointer_field("enabled", BOOL)],
};

static AUTHORIZATION: Struct = Struct {
    name: "v1beta1.KubeletAuthorization",
    fields: &[
        plain_field(
            "mode",
            KubeletKind::Text("v1beta1.KubeletAuthorizationMode"),
        ),
        plain_field("webhook", KubeletKind::Struct(&AUTHORIZATION_WEBHOOK)),
    ],
};

static AUTHORIZATION_WEBHOOK: Struct = Struct {
    name: "v1beta1.KubeletWebhookAuthorization",
    fields: &[
        plain_field("cacheAuthorizedTTL", DURATION),
        plain_field("cacheUnauthorizedTTL", DURATION),
    ],
};

static MEMORY_SWAP: Struct = Struct {
    name: "v1beta1.MemorySwapConfiguration",
    fields: &[plain_field("swapBehavior", TEXT)],
};

static LOGGING: Struct = Struct {
    name: "v1.LoggingConfiguration",
    fields: &[
        plain_field("format", TEXT),
        plain_field("flushFrequency", KubeletKind::TimeOrDuration).always(),
        plain_field("verbosity", LEVEL).always(),
        plain_field(
            "vmodule",
            KubeletKind::List(&KubeletKind::Struct(&VMODULE), "v1.VModuleConfiguration"),
        ),
        plain_field("options", KubeletKind::Struct(&FORMATS)),
    ],
};

static VMODULE: Struct = Struct {
    name: "v1.VModuleItem",
    fields: &[
        plain_field("filePattern", TEXT).always(),
        plain_field("verbosity", LEVEL).always(),
    ],
};

static FORMATS: Struct = Struct {
    name: "v1.FormatOptions",
    fields: &[
        plain_field("text", KubeletKind::Struct(&TEXT_OPTIONS)),
        plain_field("json", KubeletKind::Struct(&JSON_OPTIONS)),
    ],
};

static TEXT_OPTIONS: Struct = Struct {
    name: "v1.TextOptions",
    fields: OUTPUT_FIELDS,
};

static JSON_OPTIONS: Struct = Struct {
    name: "v1.JSONOptions",
    fields: OUTPUT_FIELDS,
};

const OUTPUT_FIELDS: &[KubeletField] = &[
    plain_field("splitStream", BOOL).embedded_in(OUTPUT),
    plain_field("infoBufferSize", KubeletKind::Quantity).embedded_in(OUTPUT),
];

static SHUTDOWN: Struct = Struct {
    name: "v1beta1.ShutdownGracePeriodByPodPriority",
    fields: &[
        plain_field("priority", INT32).always(),
        plain_field("shutdownGracePeriodSeconds", INT64).always(),
    ],
};

static CRASH_LOOP: Struct = Struct {
    name: "v1beta1.CrashLoopBackOffConfig",
    fields: &[pointer_field("maxContainerRestartPeriod", DURATION)],
};

static MEMORY: Struct = Struct {
    name: "v1beta1.MemoryReservation",
    fields: &[
        plain_field("numaNode", INT32).always(),
        plain_field(
            "limits",
            KubeletKind::Map(&KubeletKind::Quantity, "v1.ResourceList"),
        )
        .always(),
    ],
};

static TAINT: Struct = Struct {
    name: "v1.Taint",
    fields: &[
        plain_field("key", TEXT).always(),
        plain_field("value", TEXT),
        plain_field("effect", KubeletKind::Text("v1.TaintEffect")).always(),
        pointer_field("timeAdded", TEXT),
    ],
};

static TRACING: Struct = Struct {
    name: "v1.TracingConfiguration",
    fields: &[
        pointer_field("endpoint", TEXT),
        pointer_field("samplingRatePerMillion", INT32),
    ],
};

static USER_NAMESPACES: Struct = Struct {
    name: "v1beta1.UserNamespaces",
    fields: &[pointer_field("idsPerPod", INT64)],
};
