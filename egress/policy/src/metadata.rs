//! Addresses at which clouds serve an instance's metadata, and with it the instance's credentials.
//!
//! A wide `--allow-private` never opens one of these: only its own address does
//! ([`AllowPrivate`](crate::AllowPrivate)). This table is the only place that lists them; each row
//! names the page that documents it. Clouds that use another cloud's address share its row.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of a metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataService {
    /// The address that instances connect to.
    pub address: IpAddr,
    /// The providers that serve metadata there.
    pub provider: &'static str,
    /// The page that documents the address.
    pub source: &'static str,
}

/// Every known address of a metadata service.
pub const METADATA_SERVICES: &[MetadataService] = &[
    four(
        [169, 254, 169, 254],
        "AWS, Azure, Google Cloud, Oracle Cloud, IBM Cloud, DigitalOcean, Hetzner, Vultr, Akamai \
         (Linode), Exoscale, OVHcloud, UpCloud, Huawei Cloud, Yandex Cloud, OpenStack and others",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html",
    ),
    six(
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
        "AWS EC2, over IPv6",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html",
    ),
    four(
        [169, 254, 170, 2],
        "AWS ECS: metadata and credentials of a task",
        "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-iam-roles.html",
    ),
    four(
        [169, 254, 170, 23],
        "AWS EKS Pod Identity",
        "https://docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html",
    ),
    six(
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
        "AWS EKS Pod Identity, over IPv6",
        "https://docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html",
    ),
    four(
        [168, 63, 129, 16],
        "Azure WireServer",
        "https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16",
    ),
    six(
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
        "Google Cloud, over IPv6",
        "https://cloud.google.com/compute/docs/metadata/querying-metadata",
    ),
    four(
        [169, 254, 169, 252],
        "Google Kubernetes Engine: the metadata server of a node",
        "https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy",
    ),
    six(
        [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
        "Oracle Cloud, over IPv6",
        "https://github.com/oracle/oci-python-sdk (src/oci/auth/signers)",
    ),
    four(
        [192, 0, 0, 192],
        "Oracle Cloud at Customer and Classic",
        "https://docs.oracle.com/en/cloud/cloud-at-customer/occ-get-started/\
         retrieve-predefined-instance-metadata.html",
    ),
    four(
        [100, 100, 100, 200],
        "Alibaba Cloud",
        "https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata",
    ),
    six(
        [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200],
        "Alibaba Cloud, over IPv6",
        "https://github.com/canonical/cloud-init/pull/6893",
    ),
    four(
        [169, 254, 42, 42],
        "Scaleway",
        "https://docs.cloud-init.io/en/latest/reference/datasources/scaleway.html",
    ),
    six(
        [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
        "Scaleway, over IPv6",
        "https://docs.cloud-init.io/en/latest/reference/datasources/scaleway.html",
    ),
    four(
        [169, 254, 0, 23],
        "Tencent Cloud: metadata.tencentyun.com",
        "https://www.tencentcloud.com/document/product/213/4934",
    ),
    six(
        [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1],
        "Akamai (Linode), over IPv6",
        "https://techdocs.akamai.com/cloud-computing/docs/metadata-service-api",
    ),
    six(
        [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
        "OpenStack, over IPv6",
        "https://docs.openstack.org/nova/latest/admin/metadata-service.html",
    ),
    four(
        [100, 96, 0, 96],
        "Volcano Engine and BytePlus",
        "https://github.com/volcengine/cello (pkg/provider/volcengine/credential)",
    ),
];

const fn four(octets: [u8; 4], provider: &'static str, source: &'static str) -> MetadataService {
    MetadataService {
        address: IpAddr::V4(Ipv4Addr::from_octets(octets)),
        provider,
        source,
    }
}

const fn six(segments: [u16; 8], provider: &'static str, source: &'static str) -> MetadataService {
    MetadataService {
        address: IpAddr::V6(Ipv6Addr::from_segments(segments)),
        provider,
        source,
    }
}

/// Returns whether `address` serves the metadata of a cloud's instances.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    METADATA_SERVICES
        .iter()
        .any(|service| service.address == address)
}
