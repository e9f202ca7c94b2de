//! Only here: parsing of addresses into configurations, with the password nowhere else.

use std::path::PathBuf;
use std::time::Duration;

use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation, TargetSessionAttrs};

use super::{ClientCert, ConnectOptions, HostAddress, TlsMode};

const CANARY: &str = "hunter2";

/// Parses an address with the given environment variables and no others.
fn read_with(url: &str, variables: &[(&str, &str)]) -> Result<ConnectOptions, StoreError> {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    ConnectOptions::parse_in(url, &find)
}

#[track_caller]
fn read(url: &str) -> ConnectOptions {
    read_with(url, &[("USER", "ann")]).unwrap()
}

#[track_caller]
fn refusal(url: &str) -> String {
    let error = read_with(url, &[("USER", "ann")]).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CannotOpen);
    assert_eq!(&*error.what, "opening the PostgreSQL store");
    error.detail
}

fn password(address: &ConnectOptions) -> Option<&str> {
    address.config.get_password().map(|bytes| std::str::from_utf8(bytes).unwrap())
}

#[test]
fn an_address_is_read_like_libpq_reads_it() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("postgres://bob:pw@db.example:6543/shop", "postgres://bob@db.example:6543/shop", Some("pw")),
        ("postgresql://bob@db.example/shop", "postgres://bob@db.example:5432/shop", None),
        (" postgres://bob@db.example/shop\n", "postgres://bob@db.example:5432/shop", None),
        ("postgres://db.example", "postgres://ann@db.example:5432/ann", None),
        ("postgres://db.example?", "postgres://ann@db.example:5432/ann", None),
        ("postgres://bob@db.example?dbname=shop&", "postgres://bob@db.example:5432/shop", None),
        ("postgres://b%40b:p%2Fw%25@h/s%20hop", "postgres://b@b@h:5432/s hop", Some("p/w%")),
        ("postgres://bob:p@w@h/shop", "postgres://bob@h:5432/shop", Some("p@w")),
        ("postgres://bob:p:w#@h/shop", "postgres://bob@h:5432/shop", Some("p:w#")),
        ("postgres://bob:p+w@h/shop", "postgres://bob@h:5432/shop", Some("p+w")),
        ("postgres://h/shop?user=bob@corp&password=p%26w", "postgres://bob@corp@h:5432/shop", Some("p&w")),
        ("postgres://bob@[::1]:6543/shop", "postgres://bob@[::1]:6543/shop", None),
        ("postgres://bob@[fe80::1]/shop", "postgres://bob@[fe80::1]:5432/shop", None),
        ("postgres://bob@h1:1,h2,h3:3/shop", "postgres://bob@h1:1,h2:5432,h3:3/shop", None),
        ("postgres://bob@h1/shop?host=h2&port=7", "postgres://bob@h2:7/shop", None),
        ("postgres://bob@%2Frun%2Fpg:6/shop", "postgres://bob@/run/pg:6/shop", None),
        ("postgres:///shop?host=/run/pg", "postgres://ann@/run/pg:5432/shop", None),
        ("host=h dbname=shop user=bob password=pw", "postgres://bob@h:5432/shop", Some("pw")),
        ("host = h  dbname\t= shop\nuser= bob", "postgres://bob@h:5432/shop", None),
        (
            r"host=h dbname='my shop' password='it\'s \\ me'",
            "postgres://ann@h:5432/my shop",
            Some(r"it's \ me"),
        ),
        (r"host=h password=a\ b\\", "postgres://ann@h:5432/ann", Some(r"a b\")),
        ("host=h password='a=b c=d' dbname=shop", "postgres://ann@h:5432/shop", Some("a=b c=d")),
        ("host=h user=bob dbname='' password=''", "postgres://bob@h:5432/bob", None),
        ("host=h1,h2 port=6", "postgres://ann@h1:6,h2:6/ann", None),
        ("host=h host=g", "postgres://ann@g:5432/ann", None),
        ("hostaddr=10.0.0.1", "postgres://ann@10.0.0.1:5432/ann", None),
    ];
    for (url, location, secret) in cases {
        let address = read(url);
        assert_eq!(address.location(), *location, "{url}");
        assert_eq!(password(&address), *secret, "{url}");
    }
}

#[test]
fn an_invalid_address_is_rejected_with_a_reason() {
    let cases = [
        ("", "the address is empty"),
        ("shop", "parameter 1 has no `=`"),
        ("mysql://bob@h/shop", "another scheme"),
        ("jdbc:postgresql://h/shop", "expected postgres://user@host/database"),
        ("postgres://h:port/shop", "the port of host 1 is not a number"),
        ("postgres://a,h:65536/shop", "the port of host 2 is not a number"),
        ("postgres://::1/shop", "needs [ and ]"),
        ("postgres://[::1/shop", "host 1 is not of the form [address]:port"),
        ("postgres://[::1]5432/shop", "host 1 is not of the form [address]:port"),
        ("postgres://b%4@h/shop", "user holds a % without two hexadecimal digits"),
        ("postgres://b%zz@h/shop", "user holds a % without two hexadecimal digits"),
        ("postgres://b%+1@h/shop", "user holds a % without two hexadecimal digits"),
        ("postgres://b%ff@h/shop", "user is not UTF-8"),
        ("postgres://b%00@h/shop", "user holds %00"),
        ("postgres://h/shop?schema", "parameter 1 after the ? has no `=`"),
        (
            "postgres://h/shop?schema=a&colour=red",
            "the name of parameter 2 is unknown; names are application_name",
        ),
        ("host=h colour=red", "the name of parameter 2 is unknown"),
        ("host=h dbname='shop", "the quote of parameter 2 is not closed"),
        ("host=h dbname='a\\'", "the quote of parameter 2 is not closed"),
        ("host=h sslcrl=a.pem", "`sslcrl` is not supported"),
        ("host=h gssencmode=require", "`gssencmode` may only be disable or prefer"),
        ("host=h client_encoding=latin1", "`client_encoding` may only be"),
        (
            "host=h sslmode=full",
            "sslmode is `full`; it must be disable, prefer, require, verify-ca or verify-full",
        ),
        ("host=h pooler=session", "pooler is `session`; it must be transaction or none"),
        ("host=h tcp_user_timeout=30s", "`tcp_user_timeout` must be a number of milliseconds"),
        ("host=h port=x", "invalid value for option `port`"),
        ("host=h target_session_attrs=standby", "invalid value for option `target_session_attrs`"),
        ("host=a,b,c port=1,2", "3 hosts and 2 ports"),
        ("host=a,b hostaddr=10.0.0.1", "2 hosts and 1 hostaddrs"),
        ("host=h sslcert=a.pem", "sslcert is given without sslkey"),
        ("host=h sslkey=a.pem", "sslkey is given without sslcert"),
        ("host=h sslmode=verify-ca", "needs sslrootcert=<file>"),
        ("host=h sslmode=verify-ca sslrootcert=system", "use verify-full"),
        ("host=h sslmode=require sslrootcert=system", "sslmode=verify-full, not require"),
    ];
    for (url, reason) in cases {
        let detail = refusal(url);
        assert!(detail.contains(reason), "{url}: {detail}");
    }
}

#[test]
fn the_password_is_in_no_text_about_an_address() {
    let urls = [
        "postgres://bob:hunter2@h/shop",
        "postgres://bob@h/shop?password=hunter2",
        "host=h password=hunter2",
        "host=h password='hunter2'",
    ];
    for url in urls {
        let address = read(url);
        assert_eq!(password(&address), Some(CANARY), "{url}");
        let texts = [address.location(), format!("{address:?}"), format!("{address:#?}")];
        assert!(texts.iter().all(|text| !text.contains(CANARY)), "{texts:?}");
    }
    let address = read_with("host=h", &[("PGPASSWORD", CANARY)]).unwrap();
    assert_eq!(password(&address), Some(CANARY));
    assert!(!format!("{address:?}").contains(CANARY));
}

#[test]
fn no_error_quotes_a_password_that_was_not_encoded() {
    let urls = [
        "postgres://bob:hunter2/x@h/shop",
        "postgres://bob:1/hunter2@h/shop",
        "postgres://bob:1/x?y=hunter2@h/shop",
        "postgres://bob:1?hunter2@h/shop",
        "postgres://bob:1?hunter2=x@h/shop",
        "postgres://bob:hunter2%@h/shop",
        "postgres://bob:hunter2%ff@h/shop",
        "postgres://bob:hunter2@h:x/shop",
        "postgres://bob:hunter2@h/shop?colour=red",
        "postgres://bob:hunter2@h/shop?sslmode=full",
        "postgres://bob:hunter2@h/shop?password=x&hunter2=y",
        "postgres:/bob:hunter2@h/shop",
        "postgres//bob:hunter2@h/shop",
        "mysql://bob:hunter2@h/shop",
        "bob:hunter2@h/shop",
        "host=h password='hunter2",
        "host=h password=my hunter2",
        "host=h password=my hunter2=yes",
        "host=h password=my hunter2 dbname=shop",
        "host=h password=hunter2 port=x",
        "host=a,b hostaddr=::1 password=hunter2",
        "host=h password=hunter2\0",
    ];
    for url in urls {
        let error = read_with(url, &[]).unwrap_err();
        let texts = format!("{error} {error:?}");
        assert!(!texts.contains(CANARY), "{url:?}: {texts}");
    }
}

#[test]
fn missing_address_parts_come_from_the_environment() {
    let variables = [
        ("PGHOST", "far.example"),
        ("PGPORT", "7"),
        ("PGUSER", "eve"),
        ("PGDATABASE", "lake"),
        ("PGPASSWORD", "pw"),
        ("PGAPPNAME", "till"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGSSLMODE", "require"),
        ("PGSSLROOTCERT", "/ca.pem"),
        ("USER", "ann"),
    ];
    let address = read_with("postgres://", &variables).unwrap();
    assert_eq!(address.location(), "postgres://eve@far.example:7/lake");
    assert_eq!(password(&address), Some("pw"));
    assert_eq!(address.config.get_application_name(), Some("till"));
    assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    assert_eq!((address.tls, address.root_cert), (TlsMode::Require, Some(PathBuf::from("/ca.pem"))));

    let url = "postgres://bob:own@h:5/shop?sslmode=verify-full&sslrootcert=own.pem&application_name=a";
    let address = read_with(url, &variables).unwrap();
    assert_eq!(address.location(), "postgres://bob@h:5/shop");
    assert_eq!(password(&address), Some("own"));
    assert_eq!(address.config.get_application_name(), Some("a"));
    assert_eq!((address.tls, address.root_cert), (TlsMode::VerifyFull, Some(PathBuf::from("own.pem"))));

    // Not even the user's name: the driver asks the system for it.
    assert_eq!(read_with("postgres://h", &[]).unwrap().location(), "postgres://h:5432/");
    assert_eq!(read_with("postgres://h", &[("PGUSER", "")]).unwrap().location(), "postgres://h:5432/");
    assert!(read_with("host=h", &[("PGSSLMODE", "yes")]).unwrap_err().detail.contains("sslmode is `yes`"));
}

#[test]
fn remote_hosts_are_verified_unless_configured_otherwise() {
    let local = [
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        "127.8.9.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.0.0.1,localhost",
    ];
    for host in local {
        let address = read(&format!("postgres://{host}/shop"));
        assert_eq!(
            (address.tls, address.config.get_ssl_mode()),
            (TlsMode::Prefer, SslMode::Prefer),
            "{host}"
        );
    }
    let far = ["db.example", "10.0.0.1", "128.0.0.1", "[::2]", "localhost,db.example", "localhost.example"];
    for host in far {
        let address = read(&format!("postgres://{host}/shop"));
        assert_eq!(
            (address.tls, address.config.get_ssl_mode()),
            (TlsMode::VerifyFull, SslMode::Require),
            "{host}"
        );
    }
    // The name and the connected address differ: the more remote one counts.
    assert_eq!(read("host=localhost hostaddr=10.0.0.1").tls, TlsMode::VerifyFull);
    assert_eq!(read("host=db.example hostaddr=127.0.0.1").tls, TlsMode::VerifyFull);
    assert_eq!(read("hostaddr=127.0.0.1").tls, TlsMode::Prefer);
    // Roots in the address request a check of every host. Roots in the environment do not apply to a local host.
    assert_eq!(read("host=localhost sslrootcert=ca.pem").tls, TlsMode::VerifyFull);
    assert_eq!(read("host=localhost sslrootcert=system").tls, TlsMode::VerifyFull);
    for roots in ["ca.pem", "system"] {
        let address = read_with("host=localhost", &[("PGSSLROOTCERT", roots)]).unwrap();
        assert_eq!(address.tls, TlsMode::Prefer);
    }
}

#[test]
fn sslmode_is_taken_out_and_kept() {
    let modes = [
        ("disable", TlsMode::Disable, SslMode::Disable),
        ("allow", TlsMode::Prefer, SslMode::Prefer),
        ("prefer", TlsMode::Prefer, SslMode::Prefer),
        ("require", TlsMode::Require, SslMode::Require),
        ("verify-ca", TlsMode::VerifyCa, SslMode::Require),
        ("verify-full", TlsMode::VerifyFull, SslMode::Require),
    ];
    for (name, tls, driver) in modes {
        for url in [
            format!("postgres://db.example/shop?sslmode={name}&sslrootcert=my%20ca.pem"),
            format!("host=db.example sslmode={name} sslrootcert='my ca.pem'"),
        ] {
            let address = read(&url);
            assert_eq!((address.tls, address.config.get_ssl_mode()), (tls, driver), "{url}");
            assert_eq!(address.root_cert, Some(PathBuf::from("my ca.pem")), "{url}");
        }
    }
    assert_eq!(read("postgres://h/shop?ssl=true").tls, TlsMode::Require);
    assert_eq!(read("host=h sslrootcert=system").root_cert, None);
}

#[cfg(unix)]
#[test]
fn a_socket_is_never_encrypted() {
    for url in
        ["host=/run/pg", "host=/run/pg sslmode=verify-full", "postgres://%2Frun%2Fpg/shop?sslmode=require"]
    {
        let address = read(url);
        assert_eq!(
            (address.tls, address.config.get_ssl_mode()),
            (TlsMode::Disable, SslMode::Disable),
            "{url}"
        );
    }
    assert_eq!(read("host=/run/pg,localhost").tls, TlsMode::Prefer);
    assert_eq!(read("host=/run/pg,db.example").tls, TlsMode::VerifyFull);
}

#[test]
fn the_stores_own_parameters_are_taken_out() {
    let address = read("postgres://h/shop?schema=my%20own&pooler=transaction&sslcert=c.pem&sslkey=k.pem");
    assert_eq!((address.schema.as_deref(), address.pooled), (Some("my own"), Some(true)));
    let files = ClientCert { certificate: "c.pem".into(), key: "k.pem".into() };
    assert_eq!(address.client_cert, Some(files));
    let address = read("host=h schema='my own' pooler=none");
    assert_eq!((address.schema.as_deref(), address.pooled), (Some("my own"), Some(false)));
    let address = read("host=h");
    assert_eq!((address.schema, address.pooled, address.client_cert), (None, None, None));
}

#[test]
fn a_store_has_defaults_that_notice_a_lost_server() {
    assert_eq!(read("host=h").connect_limit(1), Duration::from_secs(10));
    assert_eq!(read("host=h,i").connect_limit(2), Duration::from_secs(3));
    assert_eq!(read("host=h,i connect_timeout=7").connect_limit(2), Duration::from_secs(7));
    let config = read("host=h").config;
    assert!(config.get_keepalives());
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(30));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(30)));
    assert_eq!(config.get_application_name(), Some("tidelock"));
    assert_eq!(config.get_channel_binding(), ChannelBinding::Prefer);
}

#[test]
fn the_address_overrides_the_defaults() {
    let given = "connect_timeout=0 keepalives=0 keepalives_idle=5 keepalives_count=4 tcp_user_timeout=1500 \
                 application_name='it''s' fallback_application_name=b channel_binding=require options='-c a=b' \
                 sslnegotiation=direct sslsni=1 gssencmode=disable client_encoding=UTF8";
    let given = given.replace("it''s", r"it\'s");
    let config = read(&format!("host=h {given}")).config;
    assert_eq!(config.get_connect_timeout(), None);
    assert!(!config.get_keepalives());
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(5));
    assert_eq!(config.get_keepalives_retries(), Some(4));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_millis(1500)));
    assert_eq!(config.get_application_name(), Some("it's"));
    assert_eq!(config.get_channel_binding(), ChannelBinding::Require);
    assert_eq!(config.get_options(), Some("-c a=b"));
    assert_eq!(config.get_ssl_negotiation(), SslNegotiation::Direct);

    let config = read("host=h tcp_user_timeout=0 fallback_application_name=b").config;
    assert_eq!(config.get_tcp_user_timeout(), None);
    assert_eq!(config.get_application_name(), Some("b"));
}

#[test]
fn of_several_hosts_one_that_can_be_written_is_wanted() {
    let cases = [
        ("host=a", TargetSessionAttrs::Any),
        ("host=a,b", TargetSessionAttrs::ReadWrite),
        ("host=a,b target_session_attrs=any", TargetSessionAttrs::Any),
        ("host=a target_session_attrs=read-write", TargetSessionAttrs::ReadWrite),
        ("host=a target_session_attrs=primary", TargetSessionAttrs::ReadWrite),
        ("host=a,b target_session_attrs=read-only", TargetSessionAttrs::ReadOnly),
    ];
    for (url, wanted) in cases {
        assert_eq!(read(url).config.get_target_session_attrs(), wanted, "{url}");
    }
    let host = |name: &str, ip: &str, port| HostAddress {
        name: Host::Tcp(name.to_owned()),
        ip: Some(ip.parse().unwrap()),
        port,
    };
    let hosts = read("postgres://a:1,b:2/shop?hostaddr=10.0.0.1,10.0.0.2").hosts;
    assert_eq!(hosts, [host("a", "10.0.0.1", 1), host("b", "10.0.0.2", 2)]);
}
